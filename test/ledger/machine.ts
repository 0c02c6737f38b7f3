import { expect } from "vitest";
import { judge, resolvedTo, safeRepeatUntil } from "../../src/ledger/attention.ts";
import type { Capability } from "../../src/ledger/capability.ts";
import {
  type Action,
  type AttemptNumber,
  type Failure,
  type LadderKey,
  type Millis,
  type OnUnknown,
  type State,
  TRANSITIONS,
} from "../../src/ledger/delivery.ts";
import { attach } from "../../src/ledger/evidence.ts";
import { gate } from "../../src/ledger/gate.ts";
import { chooseKey, MAX_ATTEMPTS, RUNG_MS } from "../../src/ledger/next-step.ts";
import { type HeldAttempt, settlement, type Witness } from "../../src/ledger/settlement.ts";
import { type Outcome, ownOutcome, type Verdict } from "../../src/ledger/verdict.ts";

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
  ladder: { number: number; key: LadderKey } = { number: 1, key: "fresh" };
  providerMessageId: string | null = null;
  /** Why an attention item is open; null when none is. */
  item: string | null = null;
  /** A person said that it was sent. */
  markedSent = false;
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
      if (decision.gate === "attention") this.item = decision.reason;
      this.become(decision.gate === "close" ? decision.state : "needs_attention");
      return;
    }
    const key = chooseKey(this.settled, this.table, this.onUnknown, this.now, this.ladder);
    if ("attention" in key) {
      this.item = key.attention;
      this.become("needs_attention");
      return;
    }
    this.checkKey(key.generation);
    expect(this.open, "one unsettled attempt at most").toBeUndefined();
    this.attempts.push({
      number: (this.attempts.length + 1) as AttemptNumber,
      ladder: this.ladder.number,
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
    const delivery = { ...this, ladder: this.ladder.number };
    const change = settlement(delivery, this.attempts, number as AttemptNumber, outcome, witness, this.table, this.now);
    if (!change || !before) return;
    const { verdict, reason, retryAfterS, providerMessageId } = outcome;
    expect(change.isEvidence).toBe(before.settled !== null);
    if (before.settled && change.writesVerdict && before.settled.verdict !== verdict) {
      expect(before.settled.verdict, "only unknown is ever replaced").toBe("unknown");
    }
    const settled = { verdict, reason, retryAfterS, providerMessageId, counted: change.counted };
    if (change.writesVerdict) {
      this.attempts = this.attempts.map((attempt) => (attempt === before ? { ...attempt, settled } : attempt));
      this.providerMessageId ??= providerMessageId;
    }
    expect(change.inDoubt).toBe(this.inDoubt);
    if (this.state === "needs_attention" && change.delivery) this.item = null;
    if (change.attention !== null) this.item ??= change.attention;
    if (!change.delivery) {
      this.check();
      return;
    }
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

  /** The provider reports that it has the message. */
  report(providerMessageId: string | null): void {
    const known = this.attempts.map(({ number, settled }) => ({
      number,
      verdict: settled?.verdict ?? null,
      providerMessageId: settled?.providerMessageId ?? null,
    }));
    const attachment = attach(known, providerMessageId);
    if (attachment.to === "attempt") {
      const proof: Outcome = { ...ownOutcome("unknown", "reported"), verdict: "accepted", providerMessageId };
      this.settle(attachment.number, proof, { source: "receipt" });
      const after = this.attempts.find(({ number }) => number === attachment.number);
      expect(after?.settled?.verdict, "a report is never dropped").toBe("accepted");
    } else if (attachment.to === "contradiction") {
      this.item ??= "contradiction";
      if (this.state === "pending") this.become("needs_attention");
    }
  }

  /** A person acts on the open item. */
  resolve(action: Action, acknowledged: boolean): void {
    if (this.item === null) return;
    const doubtful = {
      state: this.state,
      reason: this.item,
      expiresAt: this.expiresAt,
      suppressed: false,
      history: this.settled,
    };
    const judged = judge(action, doubtful, this.table, this.now);
    if ("why" in judged || (judged.mayDuplicate && !acknowledged)) return;
    if (action === "resend" && !acknowledged) expect(this.inDoubt, "no unacknowledged duplicate").toBe(false);
    if (action === "resend_same_key") expect(this.now).toBeLessThan(safeRepeatUntil(this.settled, this.table) ?? 0);
    this.item = null;
    const to = resolvedTo(action, this.state);
    if (!to) return;
    if (to.ladderKey) {
      this.ladder = { number: this.ladder.number + 1, key: to.ladderKey };
      this.nextAttemptAt = this.now;
    }
    if (to.state === "sent") this.markedSent = true;
    this.failure = to.failure;
    this.become(to.state);
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
    const begins = this.ladder.number > last.ladder;
    if (generation !== last.generation) {
      expect(generation).toBe(last.generation + 1);
      if (begins) expect(this.ladder.key, "a person's repeat keeps its key").toBe("fresh");
      else if (this.onUnknown === "attention")
        expect(proven, "a fresh key only where no effect is proven, or a person chose it").toBe(true);
      return;
    }
    if (begins) expect(this.ladder.key, "a person's resend never keeps the key").toBe("same");
    const { idempotency } = this.table;
    expect(idempotency.by, "a repeat only where the provider deduplicates").toBe("key");
    if (idempotency.by !== "key") return;
    const first = Math.min(...under.map((attempt) => attempt.claimedAt));
    expect(this.now, "never outside the window").toBeLessThan(first + idempotency.windowMs - idempotency.marginMs);
  }

  check(): void {
    const verdicts = this.settled.map((attempt): Verdict => attempt.verdict);
    const onLadder = this.settled.filter((attempt) => attempt.ladder === this.ladder.number);
    const counted = onLadder.filter((attempt) => attempt.counted).length + (this.open ? 1 : 0);
    expect(counted, "four attempts at most a ladder").toBeLessThanOrEqual(MAX_ATTEMPTS);
    if (this.state === "needs_attention") expect(this.item, "an item says why").not.toBeNull();
    if (verdicts.includes("accepted") && this.item === null && !this.abandoned) {
      expect(this.state, "accepted is final").toBe("sent");
    }
    if (this.state === "sent" && !this.markedSent) expect(verdicts).toContain("accepted");
    const closed = ["cancelled", "expired", "suppressed"].includes(this.state);
    if (closed || (this.state === "failed" && this.failure !== "abandoned")) {
      expect(verdicts, `${this.state} says that nothing was sent`).not.toContain("unknown");
    }
  }

  /** A person decided against what may have been sent. */
  private get abandoned(): boolean {
    return ["failed", "cancelled", "expired", "suppressed"].includes(this.state);
  }
}
