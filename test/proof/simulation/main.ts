import "./loader.ts";

const { simulate } = await import("./simulate.ts");
const from = Number(process.argv[2] ?? 1);
const count = Number(process.argv[3] ?? 10);
const traced = process.argv[4] === "trace";
let events = 0,
  faults = 0,
  bad = 0;
const started = process.hrtime.bigint();
for (let seed = from; seed < from + count; seed += 1) {
  try {
    const r = await simulate(seed, traced ? { trace: (l) => console.log(l) } : {});
    events += r.events;
    faults += r.faults.length;
    if (r.violations.length) {
      bad += 1;
      if (bad <= 10) console.log(seed, JSON.stringify(r.violations.slice(0, 4)));
    }
  } catch (e) {
    bad += 1;
    if (bad <= 10) console.log(seed, e);
  }
}
const ms = Number(process.hrtime.bigint() - started) / 1e6;
console.log({ count, bad, events, faults, ms, per: ms / count });
