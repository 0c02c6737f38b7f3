import type { Answer } from "../../../src/ledger/verdict.ts";
import type { Adapter, LookupClient, Call as Request } from "../../../src/providers/provider.ts";
import type { Call } from "../checker/history.ts";
import type { Faults } from "./faults.ts";
import type { Process } from "./process.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";

/** What becomes of one request, where all does not go well. */
const FATES = {
  bodyLost: 1,
  refused: 2,
  limited: 3,
  errorBefore: 4,
  errorAfter: 4,
  resetBefore: 4,
  resetAfter: 4,
  hangBefore: 2,
  hangAfter: 4,
  notSent: 3,
  credentials: 0.3,
} as const;
type Fate = keyof typeof FATES | "accepted";

const HAS_EFFECT: readonly Fate[] = ["accepted", "bodyLost", "errorAfter", "resetAfter", "hangAfter"];

/** A message that the provider has made. */
export interface Made {
  readonly channel: string;
  readonly messageId: string;
  /** From the request's tag. */
  readonly deliveryId: string;
  readonly at: number;
}

export interface ProviderSettings {
  readonly channel: string;
  /** How long a key is remembered; null: no repeat is recognised. */
  readonly windowMs: number | null;
  readonly answers: Answers;
}

/** How a provider words its answers. */
export interface Answers {
  accepted(messageId: string): Partial<Answer>;
  bodyLost: Partial<Answer>;
  refused: Partial<Answer>;
  limited(retryAfterS: number): Partial<Answer>;
  serverError: Partial<Answer>;
  credentials: Partial<Answer>;
}

const json = { phase: "sent", body: "json" } as const;

/** As Resend words them (providers.md). */
export const RESEND: Answers = {
  accepted: (providerMessageId) => ({ ...json, status: 200, providerMessageId }),
  bodyLost: { phase: "sent", status: 200, body: "none" },
  refused: { ...json, status: 422, code: "validation_error", message: "The from address is invalid" },
  limited: (retryAfterS) => ({ ...json, status: 429, code: "rate_limit_exceeded", retryAfterS }),
  serverError: { ...json, status: 500, code: "internal_server_error" },
  credentials: { ...json, status: 401, code: "validation_error", message: "API key is invalid" },
};

/** As Telegram's Bot API does. */
export const TELEGRAM: Answers = {
  accepted: (providerMessageId) => ({ ...json, status: 200, ok: true, providerMessageId }),
  bodyLost: { phase: "sent", status: 200, body: "none" },
  refused: { ...json, status: 400, ok: false, code: "400", message: "Bad Request: chat not found" },
  limited: (retryAfterS) => ({ ...json, status: 429, ok: false, code: "429", retryAfterS }),
  serverError: { ...json, status: 500, ok: false, code: "500", message: "Internal Server Error: restart" },
  credentials: { ...json, status: 401, ok: false, code: "401", message: "Unauthorized" },
};

const NOTHING: Answer = {
  ...{ phase: "sent", status: null, body: "none", code: null, message: null, ok: null },
  ...{ providerMessageId: null, retryAfterS: null, movedTo: null, limitPerSecond: null },
};

interface Remembered {
  readonly at: number;
  readonly body: string;
  /** Null: it is still being done. */
  messageId: string | null;
}

/** A provider of the simulated world. What it does goes on when whoever asked for it is dead. */
export class SimulatedProvider {
  readonly calls: Call[] = [];
  readonly made: Made[] = [];
  /** Requests that it has and is not done with. */
  underWay = 0;
  onMade: (made: Made) => void = () => {};
  readonly #keys = new Map<string, Remembered>();
  readonly #settings: ProviderSettings;
  readonly #scheduler: Scheduler;
  readonly #faults: Faults;
  readonly #random: Random;

  constructor(settings: ProviderSettings, world: { scheduler: Scheduler; faults: Faults; random: Random }) {
    this.#settings = settings;
    this.#scheduler = world.scheduler;
    this.#faults = world.faults;
    this.#random = world.random;
  }

  /** The account's adapter in one process. What it renders differs from process to process, as a new version's might. */
  adapterFor(process: Process): Adapter {
    return {
      lacks: () => null,
      render: async ({ deliveryId, to, message }) => JSON.stringify({ from: process.name, deliveryId, to, message }),
      call: (request) => this.#call(request, process),
      close: async () => {},
    };
  }

  /** Its record of what it made, which lags. */
  lookupFor(process: Process): LookupClient {
    return {
      find: ({ deliveryId }) =>
        new Promise((resolve) => {
          this.#scheduler.after(this.#random.between(1, 3_000), process, () => {
            if (this.#faults.strikes("provider")) return resolve({ found: "no_answer", note: "it did not answer" });
            const made = this.made.find((one) => one.deliveryId === deliveryId && one.at < this.#scheduler.now - 5_000);
            if (!made) return resolve({ found: "nothing", note: "no request is recorded" });
            const { messageId: providerMessageId, at: acceptedAt } = made;
            resolve({
              found: "accepted",
              providerMessageId,
              acceptedAt: Math.floor(acceptedAt),
              status: null,
              statusAt: null,
            });
          });
        }),
      close: async () => {},
    };
  }

  #call(request: Request, process: Process): Promise<Answer> {
    const fate: Fate = this.#faults.strikes("provider") ? this.#random.weighted(FATES) : "accepted";
    return new Promise((resolve) => {
      let isAnswered = false;
      const answer = (after: number, given: Partial<Answer>) => {
        this.#scheduler.after(after, process, () => {
          if (isAnswered) return;
          isAnswered = true;
          timeout.run = null;
          resolve({ ...NOTHING, ...given });
        });
      };
      const timeout = this.#scheduler.after(request.timeoutMs, process, () => answer(0, { code: "TIMEOUT" }));
      request.signal.addEventListener("abort", () => answer(0, { code: "ABORTED" }), { once: true });
      if (fate === "notSent") return answer(this.#travel(), { phase: "not_sent", code: "ECONNREFUSED" });
      this.underWay += 1;
      this.#scheduler.after(this.#travel(), null, () => this.#receive(request, fate, answer));
    });
  }

  #travel(): number {
    return this.#random.chance(0.8) ? this.#random.between(1, 50) : this.#random.between(100, 3_000);
  }

  #receive(request: Request, fate: Fate, answer: (after: number, given: Partial<Answer>) => void): void {
    const { answers, windowMs, channel } = this.#settings;
    const { body, idempotencyKey, to } = request;
    const { now } = this.#scheduler;
    const { message } = JSON.parse(body) as { message: { text: string } };
    const key = windowMs === null ? null : idempotencyKey;
    const number = this.calls.push({ at: now, channel, to, contents: message.text, key, body, messageId: null }) - 1;
    if (fate === "credentials") {
      this.underWay -= 1;
      answer(this.#travel(), answers.credentials);
      return;
    }
    const known = key === null ? undefined : this.#keys.get(key);
    if (known && windowMs !== null && now < known.at + windowMs) {
      this.underWay -= 1;
      answer(this.#travel(), this.#recognised(known, body, fate));
      return;
    }
    const remembered: Remembered = { at: now, body, messageId: null };
    if (key !== null) this.#keys.set(key, remembered);
    const hangs = fate === "hangBefore" || fate === "hangAfter";
    const takes = hangs ? this.#random.between(0, 3 * request.timeoutMs) : this.#travel();
    this.#scheduler.after(takes, null, () => {
      this.underWay -= 1;
      const messageId = HAS_EFFECT.includes(fate) ? this.#make(number, request.deliveryId) : null;
      if (messageId !== null) remembered.messageId = messageId;
      // What failed is not remembered.
      else if (key !== null) this.#keys.delete(key);
      const given = hangs ? null : this.#worded(fate, messageId, answers);
      if (given) answer(this.#travel(), given);
    });
  }

  #make(number: number, deliveryId: string): string {
    const { channel } = this.#settings;
    const messageId = `${channel}-${this.made.length + 1}`;
    this.calls[number] = { ...(this.calls[number] as Call), messageId };
    const made: Made = { channel, messageId, deliveryId, at: this.#scheduler.now };
    this.made.push(made);
    this.onMade(made);
    return messageId;
  }

  /** A repeat under a key: what it is answered has no further effect. */
  #recognised(known: Remembered, body: string, fate: Fate): Partial<Answer> {
    if (known.body !== body) return { ...json, status: 409, code: "invalid_idempotent_request" };
    if (known.messageId === null) return { ...json, status: 409, code: "concurrent_idempotent_requests" };
    if (fate === "accepted") return this.#settings.answers.accepted(known.messageId);
    if (fate === "bodyLost") return this.#settings.answers.bodyLost;
    return fate === "limited" ? this.#settings.answers.limited(1) : { code: "ECONNRESET" };
  }

  #worded(fate: Fate, messageId: string | null, answers: Answers): Partial<Answer> {
    switch (fate) {
      case "accepted":
        return answers.accepted(messageId ?? "");
      case "bodyLost":
        return answers.bodyLost;
      case "refused":
        return answers.refused;
      case "limited":
        return answers.limited(this.#random.between(1, 150));
      case "errorBefore":
      case "errorAfter":
        return answers.serverError;
      default:
        return { code: "ECONNRESET" };
    }
  }
}
