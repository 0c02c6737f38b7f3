import { z } from "zod";
import { receiptsQuery } from "../receipts.ts";
import * as receipts from "../schemas/receipts.ts";
import { BODY_PROBLEMS, type Route } from "./route.ts";

const WEBHOOK_PROBLEMS = ["not-found", "invalid-signature", "body-too-large", "unavailable"] as const;

export const receiptRoutes = {
  postReceipts: {
    method: "post",
    path: "/v1/receipts",
    tag: "Receipts",
    scope: "receipts:write",
    summary:
      "Report what became of messages, for services that receive providers' webhooks: one, or a list of up to 1,000",
    body: z.union([receipts.receiptRequest, z.array(receipts.receiptRequest).min(1).max(1_000)]),
    answers: {
      200: {
        description: "it is committed; for a list one answer each, in order",
        schema: z.union([receipts.received, receipts.receivedList]),
      },
    },
    problems: [...BODY_PROBLEMS, "unknown-channel"],
  },
  getReceipts: {
    method: "get",
    path: "/v1/receipts",
    tag: "Receipts",
    scope: "receipts:read",
    summary: "List receipts, newest first; matched=false: those that fit none of the ledger's messages",
    query: receiptsQuery,
    answers: { 200: { description: "a page", schema: receipts.receiptPage } },
    problems: ["invalid-parameter", "invalid-cursor"],
  },
  postResendWebhook: {
    method: "post",
    path: "/v1/webhooks/resend/{channel}",
    tag: "Receipts",
    scope: "signature",
    summary: "Take a webhook of Resend's: signed, within five minutes; 2xx only after the commit",
    answers: { 200: { description: "it is committed, now or before", schema: receipts.webhookAnswer } },
    problems: WEBHOOK_PROBLEMS,
  },
  postTelegramWebhook: {
    method: "post",
    path: "/v1/webhooks/telegram/{channel}",
    tag: "Receipts",
    scope: "signature",
    summary:
      "Take an update of Telegram's: with the secret token; who blocks the bot is suppressed, who unblocks it is not",
    answers: { 200: { description: "it is committed, now or before", schema: receipts.webhookAnswer } },
    problems: WEBHOOK_PROBLEMS,
  },
} as const satisfies Record<string, Route>;
