import type { z } from "zod";
import { type Capability, classify } from "../../src/ledger/capability.ts";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import type { Answer, Outcome } from "../../src/ledger/verdict.ts";
import type { Call } from "../../src/providers/provider.ts";

/** What was seen of a call; by default nothing after the request was written. */
export const answer = (seen: Partial<Answer> = {}): Answer => ({
  phase: "sent",
  status: null,
  body: "none",
  code: null,
  message: null,
  ok: null,
  providerMessageId: null,
  retryAfterS: null,
  movedTo: null,
  limitPerSecond: null,
  ...seen,
});

export const DELIVERY = "0198c0de-0000-7000-8000-000000000001" as DeliveryId;

export const call = (given: Partial<Call> & Pick<Call, "body">): Call => ({
  idempotencyKey: `${DELIVERY}.1`,
  deliveryId: DELIVERY,
  to: "ada@example.com",
  attempt: 1,
  signal: new AbortController().signal,
  timeoutMs: 2_000,
  ...given,
});

/** What an answer proves, when nothing else happened on the channel meanwhile. */
export const proves = (table: Capability, seen: Answer, acceptedMeanwhile = false): Outcome =>
  classify(table, seen, { acceptedMeanwhile });

/** One line of a table test: the rule, what was seen, and what it must prove. */
export interface Row {
  readonly rule: string;
  readonly seen: Partial<Answer>;
  readonly acceptedMeanwhile?: true;
  readonly proves: Partial<Outcome>;
}

/** Which row of the table decides; -1: none. */
export function decidingRow(table: Capability, row: Row): number {
  const numbered = { ...table, answers: table.answers.map((held, index) => ({ ...held, reason: String(index) })) };
  const { reason } = proves(numbered, answer(row.seen), row.acceptedMeanwhile);
  return /^\d+$/.test(reason) ? Number(reason) : -1;
}

/** Where a value is wrong, and how: `path: message; …`. Empty when it is not. */
export function faults(schema: z.ZodType, value: unknown): string {
  const issues = schema.safeParse(value).error?.issues ?? [];
  return issues
    .map((issue) => {
      const unknown = issue.code === "unrecognized_keys" ? issue.keys : [];
      return `${[...issue.path, ...unknown].join("/")}: ${issue.message}`;
    })
    .join("; ");
}
