import type { z } from "zod";
import type { Scope } from "../../store/keys.ts";
import type { ProblemType } from "../problem.ts";

interface Answer {
  readonly description: string;
  readonly schema?: z.ZodType;
  readonly headers?: Readonly<Record<string, string>>;
}

export const TAGS = {
  Deliveries: "One message, for one recipient, over one channel, once.",
  Channels: "Configured provider accounts, and what their providers guarantee.",
  Attention: "What only a person, or later evidence, can settle.",
  Receipts: "What providers report of messages after they have taken them.",
  Suppressions: "Recipients that a channel does not write to.",
  Producers: "Services that post deliveries, and when their recipients are not to be disturbed.",
  Events: "Everything that happened, in an order that can be followed.",
  Callbacks: "Where producers are told what became of their deliveries (Standard Webhooks).",
  Keys: "API keys, their producers and scopes.",
  Health: "For load balancers and orchestrators.",
} as const;

/** One endpoint: what the contract says, and what the app mounts. */
export interface Route {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly tag: keyof typeof TAGS;
  /** Null: any valid key. `public`: no key. `signature`: no key, but the provider's signature. */
  readonly scope: Scope | null | "public" | "signature";
  readonly summary: string;
  readonly query?: z.ZodObject;
  readonly headers?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly bodyIsOptional?: true;
  readonly answers: Readonly<Record<number, Answer>>;
  readonly problems: readonly ProblemType[];
}

export const BODY_PROBLEMS = ["invalid-json", "body-too-large", "unsupported-media-type", "invalid-request"] as const;
