import { type Fault, RATES } from "./faults.ts";
import { Random } from "./random.ts";

export interface PlannedDelivery {
  readonly name: string;
  readonly channel: "email" | "telegram";
  readonly to: string;
  readonly contents: string;
  readonly onUnknown: "attention" | "resend";
  /** When it is posted, each time: milliseconds from the beginning. */
  readonly postedAt: readonly number[];
  /** Milliseconds from the first post; null: none. */
  readonly deliverAfterMs: number | null;
  readonly expiresAfterMs: number | null;
  /** When its producer tries to cancel it; null: never. */
  readonly cancelAfterMs: number | null;
}

/** All that a seed decides before the first event. */
export interface Plan {
  readonly workers: number;
  readonly deliveries: readonly PlannedDelivery[];
  /** Faults happen until then: milliseconds from the beginning. */
  readonly troubleMs: number;
  readonly rates: Readonly<Record<Fault, number>>;
  readonly providerTimeoutMs: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  readonly sweepMs: number;
  /** How often a worker asks a provider about doubtful ones; null: it does not. */
  readonly lookupMs: number | null;
  /** How often an operator looks at the queue; null: nobody does. */
  readonly operatorMs: number | null;
  /** A channel is paused by an operator, from and until; null: none is. */
  readonly pause: { readonly channel: "email" | "telegram"; readonly from: number; readonly until: number } | null;
  /** A deploy: one worker after the other is stopped in order and started anew; null: none. */
  readonly deployAt: number | null;
}

export function planOf(seed: number): Plan {
  const random = new Random(seed, 1);
  const few = random.between(1, 4);
  const count = random.chance(0.02) ? random.between(10, 14) : few;
  const rates = Object.fromEntries(
    Object.entries(RATES).map(([fault, rates]) => [fault, random.pick<number>(rates)]),
  ) as Record<Fault, number>;
  const providerTimeoutMs = random.between(5, 30) * 1_000;
  const pause = planPause(random);
  // A day of looking every few seconds would be a day of nothing.
  const slowly = pause !== null && pause.until > HOUR_MS ? 50 : 1;
  return {
    workers: random.between(2, 4),
    deliveries: Array.from({ length: count }, (_, index) => planDelivery(index, random)),
    troubleMs: random.between(20, 300) * 1_000,
    rates,
    providerTimeoutMs,
    leaseMs: providerTimeoutMs + random.between(5, 20) * 1_000,
    pollMs: random.between(10, 30) * 1_000 * slowly,
    sweepMs: random.between(10, 30) * 1_000 * slowly,
    lookupMs: random.chance(0.3) ? 20_000 * slowly : null,
    operatorMs: random.chance(0.5) ? random.between(20, 200) * 1_000 : null,
    pause,
    deployAt: random.chance(0.2) ? random.between(1_000, 100_000) : null,
  };
}

const HOUR_MS = 3_600_000;

function planPause(random: Random): Plan["pause"] {
  if (!random.chance(0.1)) return null;
  const channel = random.pick(["email", "telegram"] as const);
  const from = random.between(0, 60_000);
  const isLong = random.chance(0.3);
  return { channel, from, until: from + (isLong ? random.between(22, 26) * HOUR_MS : random.between(10_000, 200_000)) };
}

function planDelivery(index: number, random: Random): PlannedDelivery {
  const channel = random.pick(["email", "telegram"] as const);
  const postedAt = random.between(0, 20_000);
  const repeats = random.chance(0.3) ? random.between(1, 2) : 0;
  const deliverAfterMs = random.chance(0.1) ? random.between(5_000, 100_000) : null;
  return {
    name: `delivery/${index}`,
    channel,
    to: channel === "email" ? `user${index % 3}@example.com` : String(1_000 + (index % 3)),
    contents: `the message of delivery ${index}`,
    onUnknown: random.chance(0.15) ? "resend" : "attention",
    postedAt: [postedAt, ...Array.from({ length: repeats }, () => postedAt + random.between(0, 120_000))],
    deliverAfterMs,
    expiresAfterMs: random.chance(0.1) ? (deliverAfterMs ?? 0) + random.between(10_000, 200_000) : null,
    cancelAfterMs: random.chance(0.1) ? random.between(0, 100_000) : null,
  };
}
