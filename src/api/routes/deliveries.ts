import { z } from "zod";
import { PROVIDERS } from "../../providers/index.ts";
import { listQuery } from "../deliveries.ts";
import { deliveryRequest } from "../delivery-request.ts";
import * as schemas from "../schemas.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

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

export const deliveryRoutes = {
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
    summary: "Read what happened to a delivery, what held it, and what its producer was told, oldest first",
    answers: { 200: { description: "the timeline", schema: schemas.timeline } },
    problems: ["not-found"],
  },
  getMessage: {
    method: "get",
    path: "/v1/deliveries/{id}/message",
    tag: "Deliveries",
    scope: "deliveries:read",
    summary: "Read the frozen message, exactly as it was posted",
    answers: { 200: { description: "the message", schema: schemas.frozenMessage } },
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
} as const satisfies Record<string, Route>;
