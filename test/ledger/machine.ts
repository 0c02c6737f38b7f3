import { expect } from "vitest";
import type { Capability } from "../../src/ledger/capability.ts";
import {
  type AttemptNumber,
  type Failure,
  type Millis,
  type OnUnknown,
  type State,
  TRANSITIONS,
} from "../../src/ledger/delivery.ts";
import { gate } from "../../src/ledger/gate.ts";
import { chooseKey, MAX_ATTEMPTS, RUNG_MS } from "../../src/ledger/next-step.ts";
import { type HeldAttempt, settlement, type Witness } from "../../src/ledger/settlement.ts";
import type { Outcome, Verdict } from "../../src/ledger/verdict.ts";

export const LEASE_MS = 60_000;
const OPEN = { paused: null, configured: true, breakerOpenUntil: null, pacedUntil: null };

/**
 * One delivery's life, moved by the real decisions alone (gate, key, settlement), as the store would write it. It checks
 * the design's rules on every step, on its own account of what happened.
 */
export class Life {
  now: Millis = 0;
  state: State = "pending";
  failure: Failure | null = null;
  attempts: HeldAttempt[] = [];
  nextAttemptAt: Millis = 0;
  expiresAt: Millis | null = null;
  readonly table: Capability;
  readonly onUnknown: OnUnknown;

  constructor(table: Capability, onUnknown: OnUnknown) {
    this.table = table;
    this.onUnknown = onUnknown;
  }

  get open(): HeldAttempt | undefined {
    return this.attempts.find((attempt) => attempt.settled === null);
  }

  private get settled() {
    return this.attempts.flatMap(({ settled, ...rest }) => (settled ? [{ ...rest, ...settled }] : []));
  }

  get inDoubt(): boolean {
    return this.settled.some((attempt) => attempt.verdict === "unknown");
  }

  /** A worker looks: claims if the gate is open. */
  claim(worker: string): void {
    if (this.state !== "pending") return;
    const decision = gate(
      {
        cancelled: false,
        expiresAt: this.expiresAt,
        suppressed: false,
        nextAttemptAt: this.nextAttemptAt,
        attemptCount: this.attempts.length,
        inDoubt: this.inDoubt,
        quietUntil: null,
        recipientPacedUntil: null,
      },
      OPEN,
      this.now,
    );
    if (decision.gate === "hold") return;
    if (decision.gate !== "open") {
      this.become(decision.gate === "close" ? decision.state : "needs_attention");
      return;
    }
    const key = chooseKey(this.settled, this.table, this.onUnknown, this.now, 1);
    if ("attention" in key) {
      this.become("needs_attention");
      return;
    }
    this.checkKey(key.generation);
    expect(this.open, "one unsettled attempt at most").toBeUndefined();
    this.attempts.push({
      number: (this.attempts.length + 1) as AttemptNumber,
      ladder: 1,
      generation: key.generation,
      claimedAt: this.now,
      claimedBy: worker,
      leaseExpiresAt: this.now + LEASE_MS,
      settled: null,
    });
    this.become("claimed");
  }

  /** Somebody says something about an attempt. */
  settle(number: number, outcome: Outcome, witness: Witness): void {
    const before = this.attempts.find((attempt) => attempt.number === number);
    const delivery = { ...this, ladder: 1, providerMessageId: null };
    const change = settlement(delivery, this.attempts, number as AttemptNumber, outcome, witness, this.table, this.now);
    if (!change || !before) return;
    if (before.settled) expect([before.settled.verdict, change.replacesUnknown]).toEqual(["unknown", true]);
    const { verdict, reason, retryAfterS } = outcome;
    this.attempts = this.attempts.map((attempt) =>
      attempt === before ? { ...attempt, settled: { verdict, reason, retryAfterS, counted: change.counted } } : attempt,
    );
    expect(change.inDoubt).toBe(this.inDoubt);
    if (!change.delivery) return;
    if (change.delivery.nextAttemptAt !== null) {
      const wait = change.delivery.nextAttemptAt - this.now;
      expect(wait, "the next attempt is on a rung").toSatisfy((ms: number) => ms >= RUNG_MS && ms % RUNG_MS === 0);
      if (retryAfterS !== null)
        expect(wait, "and not before the provider's own wait").toBeGreaterThanOrEqual(retryAfterS * 1000);
      this.nextAttemptAt = change.delivery.nextAttemptAt;
    }
    this.failure = change.delivery.failure;
    this.become(change.delivery.state);
  }

  private become(state: State): void {
    if (state !== this.state) expect(TRANSITIONS[this.state], `${state} after ${this.state}`).toContain(state);
    this.state = state;
    this.check();
  }

  /** Rule 5 and the window, told apart from the code that decides them. */
  private checkKey(generation: number): void {
    const last = this.settled.at(-1);
    if (!last) return;
    const under = this.settled.filter((attempt) => attempt.generation === last.generation);
    const proven = under.every((attempt) => attempt.verdict === "refused" || attempt.verdict === "deferred");
    if (generation !== last.generation) {
      expect(generation).toBe(last.generation + 1);
      if (this.onUnknown === "attention") expect(proven, "a fresh key only where no effect is proven").toBe(true);
      return;
    }
    const { idempotency } = this.table;
    expect(idempotency.by, "a repeat only where the provider deduplicates").toBe("key");
    if (idempotency.by !== "key") return;
    const first = Math.min(...under.map((attempt) => attempt.claimedAt));
    expect(this.now, "never outside the window").toBeLessThan(first + idempotency.windowMs - idempotency.marginMs);
  }

  check(): void {
    const verdicts = this.settled.map((attempt): Verdict => attempt.verdict);
    const counted = this.settled.filter((attempt) => attempt.counted).length + (this.open ? 1 : 0);
    expect(counted, "four attempts at most").toBeLessThanOrEqual(MAX_ATTEMPTS);
    if (verdicts.includes("accepted")) expect(this.state, "accepted is final").toBe("sent");
    if (this.state === "sent") expect(verdicts).toContain("accepted");
    if (["cancelled", "expired", "suppressed", "failed"].includes(this.state)) {
      expect(verdicts, `${this.state} says that nothing was sent`).not.toContain("unknown");
    }
  }
}
