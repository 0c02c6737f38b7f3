import { z } from "zod";
import { PROVIDERS } from "../providers/index.ts";
import type { Scope } from "../store/keys.ts";
import { listQuery } from "./deliveries.ts";
import { deliveryRequest } from "./delivery-request.ts";
import type { ProblemType } from "./problem.ts";
import * as schemas from "./schemas.ts";

interface Answer {
  readonly description: string;
  readonly schema?: z.ZodType;
  readonly headers?: Readonly<Record<string, string>>;
}

export const TAGS = {
  Deliveries: "One message, for one recipient, over one channel, once.",
  Channels: "Configured provider accounts, and what their providers guarantee.",
  Keys: "API keys, their producers and scopes.",
  Health: "For load balancers and orchestrators.",
} as const;

/** One endpoint: what the contract says, and what the app mounts. */
export interface Route {
  readonly method: "get" | "post" | "delete";
  readonly path: string;
  readonly tag: keyof typeof TAGS;
  /** Null: any valid key. `public`: no key. */
  readonly scope: Scope | null | "public";
  readonly summary: string;
  readonly query?: z.ZodObject;
  readonly headers?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly answers: Readonly<Record<number, Answer>>;
  readonly problems: readonly ProblemType[];
}

const BODY_PROBLEMS = ["invalid-json", "body-too-large", "unsupported-media-type", "invalid-request"] as const;

/** The message of each provider, for readers of the contract; which one holds depends on the channel. */
const message = z
  .union(Object.values(PROVIDERS).map((provider) => provider.message))
  .meta({ description: "by the channel's provider" });
const posted = deliveryRequest
  .extend({ to: z.union([z.string(), z.int()]).meta({ description: "an address, a chat id, …" }), message })
  .meta({ id: "DeliveryRequest" });
const naming = z.object({
  "Idempotency-Key": z.string().optional().meta({ description: "the delivery's name, unless the body has it" }),
});

export const ROUTES = {
  postDelivery: {
    method: "post",
    path: "/v1/deliveries",
    tag: "Deliveries",
    scope: "deliveries:write",
    summary: "Accept one delivery",
    headers: naming,
    body: posted,
    answers: {
      202: {
        description: "accepted: it is committed",
        schema: schemas.delivery,
        headers: { Location: "the delivery's path" },
      },
      200: {
        description: "the name is known and the request is the same: the delivery as it stands",
        schema: z.union([schemas.delivery, schemas.remembered]),
        headers: { Location: "the delivery's path", "Idempotent-Replayed": "true" },
      },
    },
    problems: [...BODY_PROBLEMS, "invalid-parameter", "name-required", "name-reused", "unknown-channel", "unavailable"],
  },
  postBatch: {
    method: "post",
    path: "/v1/deliveries/batch",
    tag: "Deliveries",
    scope: "deliveries:write",
    summary: "Accept up to 1,000 deliveries, one answer each, in order",
    body: z.array(posted).min(1).max(1_000),
    answers: { 200: { description: "one answer a delivery; a bad one spoils no other", schema: schemas.batchAnswer } },
    problems: [...BODY_PROBLEMS, "invalid-parameter", "unavailable"],
  },
  getDeliveries: {
    method: "get",
    path: "/v1/deliveries",
    tag: "Deliveries",
    scope: "deliveries:read",
    summary: "Search deliveries, newest first",
    query: listQuery,
    answers: { 200: { description: "a page", schema: schemas.deliveryPage } },
    problems: ["invalid-parameter", "invalid-cursor"],
  },
  getDelivery: {
    method: "get",
    path: "/v1/deliveries/{id}",
    tag: "Deliveries",
    scope: "deliveries:read",
    summary: "Read a delivery with its attempts",
    answers: { 200: { description: "the delivery", schema: schemas.deliveryWithAttempts } },
    problems: ["not-found"],
  },
  getTimeline: {
    method: "get",
    path: "/v1/deliveries/{id}/timeline",
    tag: "Deliveries",
    scope: "deliveries:read",
    summary: "Read everything that happened to a delivery, oldest first",
    answers: { 200: { description: "the timeline", schema: schemas.timeline } },
    problems: ["not-found"],
  },
  postCancel: {
    method: "post",
    path: "/v1/deliveries/{id}/cancel",
    tag: "Deliveries",
    scope: "deliveries:write",
    summary: "Cancel a delivery that waits and of which nothing may have been sent",
    answers: { 200: { description: "it is cancelled, now or before", schema: schemas.delivery } },
    problems: ["not-found", "already-claimed", "already-settled", "in-doubt"],
  },
  getChannels: {
    method: "get",
    path: "/v1/channels",
    tag: "Channels",
    scope: "channels:read",
    summary: "List channels with their backlogs",
    answers: { 200: { description: "all channels", schema: schemas.channelList } },
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
    answers: { 200: { description: "the channel", schema: schemas.channel } },
    problems: ["not-found"],
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
  postKey: {
    method: "post",
    path: "/v1/keys",
    tag: "Keys",
    scope: "keys:write",
    summary: "Make an API key; it is shown this once",
    body: schemas.keyRequest,
    answers: { 201: { description: "the key", schema: schemas.newApiKey, headers: { Location: "the key's path" } } },
    problems: [...BODY_PROBLEMS],
  },
  getKeys: {
    method: "get",
    path: "/v1/keys",
    tag: "Keys",
    scope: "keys:write",
    summary: "List API keys, without their secrets",
    answers: { 200: { description: "all keys", schema: schemas.keyList } },
    problems: [],
  },
  deleteKey: {
    method: "delete",
    path: "/v1/keys/{id}",
    tag: "Keys",
    scope: "keys:write",
    summary: "Revoke an API key, at once",
    answers: { 204: { description: "it is refused from now on" } },
    problems: ["not-found"],
  },
  getHealth: {
    method: "get",
    path: "/healthz",
    tag: "Health",
    scope: "public",
    summary: "The process lives",
    answers: { 200: { description: "it lives", schema: schemas.health } },
    problems: ["method-not-allowed"],
  },
  getReadiness: {
    method: "get",
    path: "/readyz",
    tag: "Health",
    scope: "public",
    summary: "The process can do its work: database, migrations, worker",
    answers: {
      200: { description: "it can", schema: schemas.health },
      503: { description: "it cannot; faults says why", schema: schemas.health },
    },
    problems: ["method-not-allowed"],
  },
} as const satisfies Record<string, Route>;

export type OperationId = keyof typeof ROUTES;
