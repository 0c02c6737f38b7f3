import * as schemas from "../schemas.ts";
import type { Route } from "./route.ts";

export const healthRoutes = {
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
