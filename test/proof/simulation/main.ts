/**
 * `npm run simulate -- --seeds N [--from S]`: N histories, from seed S on; ends with 1 when a rule is broken in one of them.
 * `npm run simulate -- --seed S [--only 3,17] [--without death,night] [--deliveries 0,2]`: one of them, told step by step.
 */
import { parseArgs } from "node:util";
import "./loader.ts";
import type { Fault } from "./faults.ts";

const { simulate } = await import("./simulate.ts");
const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "1000" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    only: { type: "string" },
    without: { type: "string" },
    deliveries: { type: "string" },
  },
});
const listed = (text: string | undefined): string[] | null => (text === undefined ? null : text.split(","));
const numbers = (text: string | undefined): number[] | null => listed(text)?.map(Number) ?? null;
const say = (line: string) => process.stdout.write(`${line}\n`);

const broken =
  values.seed === undefined ? await many(Number(values.from), Number(values.seeds)) : await one(Number(values.seed));
process.exitCode = broken > 0 ? 1 : 0;

/** One history, told. */
async function one(seed: number): Promise<number> {
  const only = numbers(values.only);
  const scope = {
    only: only && new Set(only),
    without: (listed(values.without) ?? []) as Fault[],
    deliveries: numbers(values.deliveries),
  };
  const { violations } = await simulate(seed, { scope, trace: say });
  for (const { rule, delivery, what } of violations) say(`BROKEN ${rule}: ${delivery ?? "the whole"}: ${what}`);
  if (violations.length === 0) say(`seed ${seed}: no rule is broken`);
  return violations.length;
}

/** Many, and what they come to. */
async function many(from: number, seeds: number): Promise<number> {
  const sums = { deliveries: 0, attempts: 0, calls: 0, messages: 0, faults: 0, broken: 0 };
  const startedAt = process.hrtime.bigint();
  for (let seed = from; seed < from + seeds; seed += 1) {
    const { violations, history, faults } = await simulate(seed).catch((cause: unknown) => {
      throw new Error(`seed ${seed} could not be simulated`, { cause });
    });
    sums.deliveries += history.tables.deliveries.length;
    sums.attempts += history.tables.attempts.length;
    sums.calls += history.calls.length;
    sums.messages += history.calls.filter(({ messageId }) => messageId !== null).length;
    sums.faults += faults.length;
    if (violations.length === 0) continue;
    sums.broken += 1;
    const [{ rule, delivery, what } = { rule: "", delivery: null, what: "" }] = violations;
    say(`seed ${seed}: BROKEN ${rule}: ${delivery ?? "the whole"}: ${what}`);
    say(`  npm run simulate -- --seed ${seed}`);
  }
  const seconds = Number(process.hrtime.bigint() - startedAt) / 1e9;
  const { deliveries, attempts, calls, messages, faults, broken: bad } = sums;
  say(
    `${seeds} histories from seed ${from} in ${seconds.toFixed(0)} s: ${deliveries} deliveries, ${attempts} attempts, ${calls} provider calls,`,
  );
  say(`${messages} messages made, ${faults} faults; histories in which a rule is broken: ${bad}`);
  return bad;
}
