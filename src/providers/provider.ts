import type { z } from "zod";
import type { Capability } from "../ledger/capability.ts";
import type { DeliveryId } from "../ledger/delivery.ts";
import type { Answer } from "../ledger/verdict.ts";

/** What is rendered into a provider's request: the frozen message and where it goes. */
export interface Renderable {
  readonly deliveryId: DeliveryId;
  /** The effective recipient: the one posted, or the address it moved to. */
  readonly to: string;
  /** The frozen message, exactly as accepted; valid by the provider's `message` schema. */
  readonly message: unknown;
}

export interface Call {
  /** The rendered request body, byte for byte as `render` made it or as it was frozen. */
  readonly body: string;
  readonly idempotencyKey: string;
  readonly deliveryId: DeliveryId;
  /** The recipient that the body was rendered for. */
  readonly to: string;
  /** The attempt's number, from 1. */
  readonly attempt: number;
  /** Aborts the call; the adapter's own time-out is `timeoutMs`. */
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
}

/** A configured account at a provider: renders requests and sends them. Never throws for what a provider answers. */
export interface Adapter {
  /** What the account needs a message to say itself, for it has no default; null when nothing is missing. */
  lacks(message: unknown): { readonly path: readonly string[]; readonly fault: string } | null;
  /** The request body for this message; no I/O. Throws when the message cannot be rendered: then nothing was sent. */
  render(input: Renderable): Promise<string>;
  /** One provider call. Resolves with what was seen, whatever happened; secrets are removed from it. */
  call(call: Call): Promise<Answer>;
  close(): Promise<void>;
}

/** What the ledger knows about a provider apart from any account: its guarantees and its words. */
export interface Provider {
  readonly name: string;
  readonly capability: Capability;
  /** The recipient (`to`) as posted: a string after parsing. */
  readonly recipient: z.ZodType<string>;
  /** The message as posted. Used to check, never to transform: what is frozen is what was posted. */
  readonly message: z.ZodType;
  /** One line for the operators' queue: the subject or the beginning of the text. At most 200 characters. */
  preview(message: unknown): string;
}
