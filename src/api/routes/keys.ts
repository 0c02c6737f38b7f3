import * as schemas from "../schemas.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

export const keyRoutes = {
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
} as const satisfies Record<string, Route>;
