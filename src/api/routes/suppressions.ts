import * as schemas from "../schemas/suppressions.ts";
import { removalQuery, suppressionsQuery } from "../suppressions.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

const PATH = "/v1/suppressions/{channel}/{recipient}";

export const suppressionRoutes = {
  getSuppressions: {
    method: "get",
    path: "/v1/suppressions",
    tag: "Suppressions",
    scope: "suppressions:read",
    summary: "List whom the channels do not write to, and why; newest first",
    query: suppressionsQuery,
    answers: { 200: { description: "a page", schema: schemas.suppressionPage } },
    problems: ["invalid-parameter", "invalid-cursor"],
  },
  getSuppression: {
    method: "get",
    path: PATH,
    tag: "Suppressions",
    scope: "suppressions:read",
    summary: "Read why a channel does not write to a recipient",
    answers: { 200: { description: "the suppression", schema: schemas.suppression } },
    problems: ["invalid-parameter", "not-found"],
  },
  putSuppression: {
    method: "put",
    path: PATH,
    tag: "Suppressions",
    scope: "suppressions:write",
    summary: "Suppress a recipient: deliveries to it close as suppressed. One that was suppressed gets the new reason",
    body: schemas.suppressionRequest,
    answers: {
      200: { description: "it was suppressed before; reason and author are the new ones", schema: schemas.suppression },
      201: {
        description: "it is suppressed from now on",
        schema: schemas.suppression,
        headers: { Location: "the suppression's path" },
      },
    },
    problems: [...BODY_PROBLEMS, "invalid-parameter", "not-found"],
  },
  deleteSuppression: {
    method: "delete",
    path: PATH,
    tag: "Suppressions",
    scope: "suppressions:write",
    summary: "Let a channel write to a recipient again",
    query: removalQuery,
    answers: { 204: { description: "it is not suppressed any more" } },
    problems: ["invalid-parameter", "not-found"],
  },
} as const satisfies Record<string, Route>;
