import type { IncomingHttpHeaders } from "node:http";
import type { ConnectionFault, Reply, Step } from "./step.ts";

/** What a person would have received. */
export interface Effect {
  readonly recipient: string;
  readonly content: unknown;
  /** The idempotency key that it was sent under; null where there is none. */
  readonly key: string | null;
  /** Epoch milliseconds, by the fake's clock. */
  readonly at: number;
}

/** A request that asks what became of messages. */
export interface RecordedQuestion {
  readonly at: number;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
}

export interface RecordedCall {
  readonly at: number;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The raw body. */
  readonly body: string;
  readonly recipient: string | null;
  readonly key: string | null;
}

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Letter {
  readonly recipient: string;
  readonly content: unknown;
  readonly key: string | null;
}

/** The answer to a look-up, and under which name faults are scripted for it: `GET /logs`. */
export interface LookedUp {
  readonly name: string;
  readonly reply: Reply;
}

/** What differs between the providers. */
export interface Desk {
  /** The answer to a GET, where the provider can be asked what became of messages; null: it is no such request. */
  lookUp?(received: Received): LookedUp | null;
  /** Called when the provider has answered a request, whether its answer arrived or not: for its log. */
  record?(letter: Letter, reply: Reply, at: number): void;
  /** The message and its recipient, or the answer to a request that is refused at the door. */
  read(received: Received): Letter | Reply;
  /** Called before a message goes out: an answer instead (a replay, a conflict), or null to go on. */
  admit(letter: Letter, now: number): Reply | null;
  /** Called when it has gone out: the answer. */
  accepted(letter: Letter, now: number): Reply;
  /** Called when a step refuses it without effect. */
  refused(letter: Letter, reply: Reply, now: number): void;
  /** Forgets everything. */
  reset(): void;
  /** Which credentials are good; null: all. */
  accept(credentials: readonly string[] | null): void;
}

export interface FakeOptions {
  readonly port?: number;
  /** Idle connections are closed after so long. Default 5 s, as servers do. */
  readonly idleMs?: number;
  /** Count, but keep no calls and no effects: for benches. */
  readonly countOnly?: boolean;
  /** Called after an effect and awaited before the answer: webhooks that overtake it. */
  readonly onEffect?: (effect: Effect) => void | Promise<void>;
}

export interface Fake {
  readonly url: string;
  readonly calls: readonly RecordedCall[];
  /** Look-ups are no calls. */
  readonly questions: readonly RecordedQuestion[];
  readonly effects: readonly Effect[];
  readonly counts: { readonly calls: number; readonly effects: number };
  /** How often each recipient has received something. */
  readonly received: ReadonlyMap<string, number>;
  /**
   * The steps for the next calls for this recipient (or for look-ups of this name: `GET /logs`), one a call; then it is
   * accepted. Replaces what was scripted.
   */
  script(recipient: string, steps: readonly Step[]): void;
  /** For every call without a step of its own, until it is taken back with null. Not for look-ups. */
  always(step: Step | null): void;
  /** For the next connections, one each; idle ones are closed. */
  connections(faults: readonly ConnectionFault[]): void;
  accept(credentials: readonly string[] | null): void;
  /** Sets the fake's clock forward. */
  advance(ms: number): void;
  /** Forgets calls, effects, scripts and keys; the clock keeps its time. */
  reset(): void;
  close(): Promise<void>;
}
