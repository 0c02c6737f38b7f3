import { eventsQuery } from "../events.ts";
import * as schemas from "../schemas/events.ts";
import type { Route } from "./route.ts";

export const eventRoutes = {
  getEvents: {
    method: "get",
    path: "/v1/events",
    tag: "Events",
    scope: "events:read",
    summary: "Follow everything that happens, oldest first; a reader that remembers its cursor misses nothing",
    query: eventsQuery,
    answers: { 200: { description: "a page, empty when nothing came in time", schema: schemas.eventPage } },
    problems: ["invalid-parameter", "invalid-cursor"],
  },
} as const satisfies Record<string, Route>;
