import type { Effect, Fake, RecordedCall } from "./desk.ts";
import { jsonReply, type Reply, type Step } from "./step.ts";

/** What another process may ask of a fake, at `/_control/<word>`. */
type Order = (fake: Fake, given: never) => unknown;

const ORDERS: Readonly<Record<string, Order>> = {
  script: (fake, { recipient, steps }: { recipient: string; steps: Step[] }) => fake.script(recipient, steps),
  always: (fake, { step }: { step: Step | null }) => fake.always(step),
  connections: (fake, { faults }: { faults: ("reset" | "close")[] }) => fake.connections(faults),
  accept: (fake, { credentials }: { credentials: string[] | null }) => fake.accept(credentials),
  advance: (fake, { ms }: { ms: number }) => fake.advance(ms),
  reset: (fake) => fake.reset(),
  effects: (fake) => fake.effects,
  calls: (fake) => fake.calls,
  counts: (fake) => ({
    ...fake.counts,
    recipients: fake.received.size,
    /** Recipients that received more than one message. */
    repeated: Object.fromEntries([...fake.received].filter(([, times]) => times > 1)),
  }),
};

export function control(fake: Fake, word: string, body: string): Reply {
  const order = Object.hasOwn(ORDERS, word) ? ORDERS[word] : undefined;
  if (!order) return jsonReply(404, { error: `the orders are ${Object.keys(ORDERS).join(", ")}` });
  return jsonReply(200, order(fake, (body === "" ? {} : JSON.parse(body)) as never) ?? null);
}

export interface Counts {
  readonly calls: number;
  readonly effects: number;
  readonly recipients: number;
  readonly repeated: Readonly<Record<string, number>>;
}

/** A fake in another process. */
export function remoteFake(url: string) {
  const order = async <T>(word: string, given: unknown = {}): Promise<T> => {
    const response = await fetch(`${url}/_control/${word}`, { method: "POST", body: JSON.stringify(given) });
    if (!response.ok) throw new Error(`${word}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  };
  return {
    url,
    script: (recipient: string, steps: readonly Step[]) => order<null>("script", { recipient, steps }),
    always: (step: Step | null) => order<null>("always", { step }),
    connections: (faults: readonly ("reset" | "close")[]) => order<null>("connections", { faults }),
    accept: (credentials: readonly string[] | null) => order<null>("accept", { credentials }),
    advance: (ms: number) => order<null>("advance", { ms }),
    reset: () => order<null>("reset"),
    effects: () => order<Effect[]>("effects"),
    calls: () => order<RecordedCall[]>("calls"),
    counts: () => order<Counts>("counts"),
  };
}
