import type { z } from "zod";
import type { Capability } from "../ledger/capability.ts";
import type { DeliveryId, Millis, ReceiptStatus } from "../ledger/delivery.ts";
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

/** A webhook request, as it came: the signature is over these very bytes. */
export interface WebhookRequest {
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** What a webhook says, in the ledger's words. */
export type WebhookEvent =
  /** About one message: what became of it, or (status null) only that the provider has it, or a type that we do not know. */
  | {
      readonly kind: "receipt";
      /** The provider's id of the event, the same in every repeat of it. At most 255 characters. */
      readonly eventId: string;
      /** The provider's own word. At most 100 characters. */
      readonly type: string;
      readonly status: ReceiptStatus | null;
      /** It could not be said of a message that the provider had not accepted. */
      readonly provesAcceptance: boolean;
      readonly occurredAt: Millis;
      /** From our own tag. */
      readonly deliveryId: DeliveryId | null;
      readonly providerMessageId: string | null;
      /** Reason to put recipients onto the suppression list, or null. */
      readonly suppresses: string | null;
      /** Whom it concerns; null: it does not say, and so the delivery's recipient. */
      readonly recipients: readonly string[] | null;
      /** What an operator wants to know of it (bounce type, reason), at most 4 kB as JSON; no contents, no IP addresses. */
      readonly detail: Readonly<Record<string, unknown>> | null;
    }
  /** About a recipient of this channel, whatever was sent to it. */
  | {
      readonly kind: "recipient";
      readonly eventId: string;
      readonly type: string;
      readonly occurredAt: Millis;
      readonly recipient: string;
      readonly change: { readonly to: "blocked" | "unblocked" } | { readonly to: "moved"; readonly movedTo: string };
    };

/** The provider's webhooks: whether a request is its own, and what it says. */
export interface WebhookReader {
  /** Why this cannot be a secret of such webhooks, or null. Never repeats the secret. */
  secretFault(secret: string): string | null;
  /** Does the request carry what a signature needs? Looked at before the body is read. */
  isSigned(headers: Headers): boolean;
  /** Is the request signed with one of the secrets, and (where it carries a time) no older or newer than five minutes? Never throws. */
  verify(request: WebhookRequest, secrets: readonly string[], now: Millis): boolean;
  /** Null: nothing in it is for the ledger. Never throws, whatever the (verified) request holds. */
  read(request: WebhookRequest, receivedAt: Millis): WebhookEvent | null;
}

/** One doubtful delivery that a provider is asked about. */
export interface Sought {
  readonly deliveryId: DeliveryId;
  /** When a request may have reached the provider: from each doubtful claim to the end of its lease. Epoch milliseconds. */
  readonly spans: readonly { readonly from: Millis; readonly until: Millis }[];
}

export type Finding =
  /** The provider's own record shows that it accepted the message. `status`: what it says became of it, if it says so. */
  | {
      readonly found: "accepted";
      readonly providerMessageId: string;
      readonly acceptedAt: Millis;
      readonly status: ReceiptStatus | null;
      readonly statusAt: Millis | null;
    }
  /** Requests were recorded, none of them accepted; in words, for an operator. Proves nothing: a record may lag. */
  | { readonly found: "not_accepted"; readonly note: string }
  /** No request was recorded. Proves nothing. */
  | { readonly found: "nothing"; readonly note: string }
  /** The provider could not be asked (or not to the end); in words, secrets removed. */
  | { readonly found: "no_answer"; readonly note: string };

/** Asks a provider what became of messages. Paces itself to at most one request a second. */
export interface LookupClient {
  find(sought: Sought, signal: AbortSignal): Promise<Finding>;
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
  /** Null where the provider has no webhooks. */
  readonly webhooks: WebhookReader | null;
}
