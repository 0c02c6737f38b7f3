import * as schemas from "../schemas.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

export const channelRoutes = {
  getChannels: {
    method: "get",
    path: "/v1/channels",
    tag: "Channels",
    scope: "channels:read",
    summary: "List channels: backlogs, what holds them, rates, and what their calls proved lately",
    answers: { 200: { description: "all channels", schema: schemas.channelList } },
    problems: [],
  },
  getActivity: {
    method: "get",
    path: "/v1/channels/activity",
    tag: "Channels",
    scope: "channels:read",
    summary: "Read what the channels did in the last hour, and what is due next",
    answers: { 200: { description: "all channels", schema: schemas.channelActivityList } },
    problems: [],
  },
  postPause: {
    method: "post",
    path: "/v1/channels/{id}/pause",
    tag: "Channels",
    scope: "channels:write",
    summary: "Pause a channel: no attempt is made on it until it is resumed",
    body: schemas.pauseRequest,
    answers: { 200: { description: "the channel", schema: schemas.channel } },
    problems: [...BODY_PROBLEMS, "not-found"],
  },
  postResume: {
    method: "post",
    path: "/v1/channels/{id}/resume",
    tag: "Channels",
    scope: "channels:write",
    summary: "Resume a channel, whoever paused it",
    body: schemas.resumeRequest,
    bodyIsOptional: true,
    answers: { 200: { description: "the channel", schema: schemas.channel } },
    problems: [...BODY_PROBLEMS, "not-found"],
  },
  getProviders: {
    method: "get",
    path: "/v1/providers",
    tag: "Channels",
    scope: null,
    summary: "Read the capability tables: what each provider guarantees",
    answers: { 200: { description: "the tables", schema: schemas.providers } },
    problems: [],
  },
} as const satisfies Record<string, Route>;
