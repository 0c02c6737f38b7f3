import * as schemas from "../schemas/callbacks.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

const CALLBACK = "/v1/producers/{producer}/callback";

export const callbackRoutes = {
  putCallback: {
    method: "put",
    path: CALLBACK,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "Register or change where a producer is told what became of its deliveries",
    body: schemas.callbackRequest,
    answers: {
      200: { description: "it is changed, and enabled", schema: schemas.callbackWithSecret },
      201: {
        description: "it is registered, and told of what happens from now on",
        schema: schemas.callbackWithSecret,
      },
    },
    problems: [...BODY_PROBLEMS, "not-found"],
  },
  getCallback: {
    method: "get",
    path: CALLBACK,
    tag: "Callbacks",
    scope: "callbacks:read",
    summary: "Read a producer's callback: whether it works, since when it fails, and why it was disabled",
    answers: { 200: { description: "the callback", schema: schemas.callback } },
    problems: ["not-found"],
  },
  deleteCallback: {
    method: "delete",
    path: CALLBACK,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "End a producer's callback, with the messages that wait",
    answers: { 204: { description: "there is none any more" } },
    problems: ["not-found"],
  },
  postCallbackEnable: {
    method: "post",
    path: `${CALLBACK}/enable`,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "Enable a callback again: it goes on where it stopped",
    answers: { 200: { description: "the callback", schema: schemas.callback } },
    problems: ["not-found"],
  },
  postCallbackRotate: {
    method: "post",
    path: `${CALLBACK}/rotate`,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "Make a new secret, shown this once; the old one also signs for a day",
    answers: { 200: { description: "the callback, with its new secret", schema: schemas.callbackWithSecret } },
    problems: ["not-found"],
  },
  postCallbackTest: {
    method: "post",
    path: `${CALLBACK}/test`,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "Post a message of the type ledger.test now, and say what came back",
    answers: { 200: { description: "what came back", schema: schemas.callbackTest } },
    problems: ["not-found"],
  },
  postCallbackReplay: {
    method: "post",
    path: `${CALLBACK}/replay`,
    tag: "Callbacks",
    scope: "callbacks:write",
    summary: "Post everything after a place in the feed, or since a time, again: under the ids that it had",
    body: schemas.replayRequest,
    answers: { 200: { description: "the callback", schema: schemas.callback } },
    problems: [...BODY_PROBLEMS, "not-found", "invalid-cursor"],
  },
} as const satisfies Record<string, Route>;
