import { producersQuery } from "../producers.ts";
import { quietHours } from "../quiet-hours.ts";
import * as schemas from "../schemas/producers.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

const QUIET_HOURS = "/v1/producers/{producer}/quiet_hours";

export const producerRoutes = {
  getProducers: {
    method: "get",
    path: "/v1/producers",
    tag: "Producers",
    scope: "producers:read",
    summary: "List producers; a producer's key sees its own",
    query: producersQuery,
    answers: { 200: { description: "a page", schema: schemas.producerPage } },
    problems: ["invalid-parameter", "invalid-cursor"],
  },
  putQuietHours: {
    method: "put",
    path: QUIET_HOURS,
    tag: "Producers",
    scope: "producers:write",
    summary: "Set when a producer's deliveries are not sent, unless they say it themselves",
    body: quietHours,
    answers: { 200: { description: "the producer", schema: schemas.producer } },
    problems: [...BODY_PROBLEMS, "not-found"],
  },
  deleteQuietHours: {
    method: "delete",
    path: QUIET_HOURS,
    tag: "Producers",
    scope: "producers:write",
    summary: "End a producer's quiet hours: what they hold is sent",
    answers: { 204: { description: "it has none" } },
    problems: ["not-found"],
  },
} as const satisfies Record<string, Route>;
