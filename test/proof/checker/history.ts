/**
 * Everything that is known about one run, from outside: what producers and operators asked and were answered, what reached
 * the providers and had an effect, what was reported, and the ledger's tables at the end. Times in epoch milliseconds.
 *
 * Whatever runs the ledger (the simulation, the chaos run) writes one of these; the checker reads nothing else, and neither
 * this folder nor what it imports shares code with the product.
 */
export interface History {
  readonly channels: Readonly<Record<string, Guarantee>>;
  readonly posts: readonly Post[];
  readonly calls: readonly Call[];
  readonly decisions: readonly Decision[];
  readonly notices: readonly Notice[];
  readonly tables: Tables;
}

/** What a channel's provider promises in its documentation; `null`: it recognises no repeat. */
export interface Guarantee {
  readonly deduplicates: { readonly windowMs: number } | null;
}

/** One POST of a delivery, and its answer. */
export interface Post {
  readonly producerId: string;
  readonly name: string;
  readonly channel: string;
  readonly to: string;
  /** The request as posted; the same for every repeat of the name. */
  readonly request: unknown;
  /** What the recipient is to read: of no other delivery. */
  readonly contents: string;
  readonly onUnknown: "attention" | "resend";
  /** Null: no answer came. */
  readonly status: number | null;
  /** The delivery's id, from the answer. */
  readonly id: string | null;
}

/** One request that reached a provider. */
export interface Call {
  readonly at: number;
  readonly channel: string;
  readonly to: string;
  readonly contents: string;
  /** The idempotency key, where the provider takes one. */
  readonly key: string | null;
  /** Byte for byte. */
  readonly body: string;
  /** The message that it made; null: it made none (refused, failed before, or recognised as a repeat). */
  readonly messageId: string | null;
}

/** What a person asked for, and whether the ledger said that it was done; null: no answer came. */
export type Decision =
  | {
      readonly kind: "resolve";
      readonly itemId: string;
      readonly action: "mark_sent" | "resend" | "resend_same_key" | "abandon";
      readonly done: boolean | null;
    }
  | { readonly kind: "cancel"; readonly deliveryId: string; readonly done: boolean | null };

/** One webhook event of a provider, as it was told to the ledger. */
export interface Notice {
  readonly channel: string;
  readonly eventId: string;
  /** The tag that came back; null: it carried none. */
  readonly deliveryId: string | null;
  readonly messageId: string;
  /** It was about a message that the provider had taken. */
  readonly provesAcceptance: boolean;
  /** The ledger answered 2xx, at least once. */
  readonly acknowledged: boolean;
}

/** Rows of the ledger's tables, their columns by their own names; times as epoch milliseconds. */
export interface Tables {
  readonly deliveries: readonly DeliveryRow[];
  readonly messages: readonly { readonly delivery_id: string; readonly request: unknown }[];
  readonly attempts: readonly AttemptRow[];
  readonly attention_items: readonly ItemRow[];
  readonly receipts: readonly {
    readonly channel: string;
    readonly event_id: string;
    readonly delivery_id: string | null;
  }[];
  readonly events: readonly EventRow[];
}

export interface DeliveryRow {
  readonly id: string;
  readonly producer_id: string;
  readonly name: string;
  readonly channel: string;
  readonly recipient: string;
  readonly state: string;
  readonly failure: string | null;
  readonly attempt_count: number;
  readonly provider_message_id: string | null;
}

export interface AttemptRow {
  readonly delivery_id: string;
  readonly number: number;
  readonly ladder: number;
  readonly generation: number;
  readonly idempotency_key: string;
  readonly claimed_at: number;
  readonly settled_at: number | null;
  readonly verdict: string | null;
  readonly reason: string | null;
  readonly counted: boolean;
  readonly provider_message_id: string | null;
  readonly retry_after_s: number | null;
  readonly evidence_at: number | null;
}

export interface ItemRow {
  readonly id: string;
  readonly delivery_id: string;
  readonly reason: string;
  readonly detail: unknown;
  readonly closed_at: number | null;
  readonly resolution: string | null;
}

export interface EventRow {
  readonly id: number;
  readonly type: string;
  readonly delivery_id: string | null;
  readonly at: number;
  readonly data: Readonly<Record<string, unknown>>;
}
