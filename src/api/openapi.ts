import { z } from "zod";
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject } from "zod-openapi";
import { PROBLEMS, type ProblemType } from "./problem.ts";
import { ROUTES } from "./routes/index.ts";
import { type Route, TAGS } from "./routes/route.ts";
import * as schemas from "./schemas.ts";

const DESCRIPTION = `One message, one recipient, one stable name: sent once, or visibly not sent, or visibly unknown.

Errors are RFC 9457 problems. Times are RFC 3339 in UTC with milliseconds. Lists take \`limit\` (1–100, default 25) and an
opaque \`cursor\`, and answer \`{ data, next_cursor }\`; the event feed is read by \`after\`, and its \`next_cursor\` is never null.`;

/** The contract, generated from the same table that the app mounts. */
export function openapiDocument() {
  const paths: ZodOpenApiPathsObject = {};
  for (const [operationId, route] of Object.entries<Route>(ROUTES)) {
    const path = paths[route.path] ?? {};
    paths[route.path] = { ...path, [route.method]: operation(operationId, route) };
  }
  return createDocument({
    openapi: "3.1.0",
    info: {
      title: "Delivery ledger",
      version: "1.0.0",
      description: DESCRIPTION,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    security: [{ apiKey: [] }],
    components: { securitySchemes: { apiKey: { type: "http", scheme: "bearer", description: "an API key" } } },
    paths,
  });
}

const hasKey = ({ scope }: Route): boolean => scope !== "public" && scope !== "signature";

function operation(operationId: string, route: Route): ZodOpenApiOperationObject {
  const parameters = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => [name, z.string()]);
  return {
    operationId,
    tags: [route.tag],
    summary: route.summary,
    ...(hasKey(route) && route.scope !== null && { description: `Scope \`${route.scope}\`.` }),
    ...(!hasKey(route) && { security: [] }),
    requestParams: {
      ...(parameters.length > 0 && { path: z.object(Object.fromEntries(parameters)) }),
      ...(route.query && { query: route.query }),
      ...(route.headers && { header: route.headers }),
    },
    ...(route.body && {
      requestBody: { required: !route.bodyIsOptional, content: { "application/json": { schema: route.body } } },
    }),
    responses: { ...answers(route), ...problems(route) },
  };
}

function answers(route: Route): ZodOpenApiOperationObject["responses"] {
  const entries = Object.entries(route.answers).map(([status, { description, schema, headers = {} }]) => {
    const documented = Object.entries(headers).map(([name, about]) => [
      name,
      { description: about, schema: { type: "string" as const } },
    ]);
    return [
      status,
      {
        description,
        ...(documented.length > 0 && { headers: Object.fromEntries(documented) }),
        ...(schema && { content: { "application/json": { schema } } }),
      },
    ];
  });
  return Object.fromEntries(entries);
}

/** The problems of a route by status; every route with a key has the key's, and every route can fail. */
function problems(route: Route): ZodOpenApiOperationObject["responses"] {
  const always: ProblemType[] = !hasKey(route) ? [] : ["unauthorized", "forbidden", "unavailable", "internal"];
  const byStatus = Object.groupBy(new Set([...route.problems, ...always]), (type) => String(PROBLEMS[type].status));
  const entries = Object.entries(byStatus).map(([status, types = []]) => [
    status,
    {
      description: types.map((type) => `\`${type}\`: ${PROBLEMS[type].title}`).join("; "),
      content: { "application/problem+json": { schema: schemas.problem } },
    },
  ]);
  return Object.fromEntries(entries);
}
