import type { Attempt, Delivery } from "./attempts.tsx";
import type { Answer } from "./client.ts";
import { Copied, Time } from "./parts.tsx";
import { counted } from "./text.ts";

type Table = Answer<"getProviders">["data"][number];

/** One idempotency key: its attempts, until when a repeat is safe, and when the provider may have forgotten it. Epoch milliseconds. */
interface KeyWindow {
  readonly key: string;
  readonly attempts: readonly Attempt[];
  readonly from: number;
  readonly safeUntil: number;
  readonly forgottenAt: number;
}

function windowsOf(attempts: readonly Attempt[], windowMs: number, marginMs: number): readonly KeyWindow[] {
  return [...Map.groupBy(attempts, ({ idempotency_key }) => idempotency_key)].map(([key, some]) => {
    const from = Math.min(...some.map(({ claimed_at }) => Date.parse(claimed_at)));
    return { key, attempts: some, from, safeUntil: from + windowMs - marginMs, forgottenAt: from + windowMs };
  });
}

const at = (ms: number): string => new Date(ms).toISOString();

/** When does the provider forget? The keys of the attempts on a line of time. */
export function Windows({ delivery, providers }: { delivery: Delivery; providers: Answer<"getProviders"> }) {
  const table = providers.data.find(({ provider }) => provider === delivery.provider);
  if (!table || delivery.attempts.length === 0) return null;
  return (
    <section aria-labelledby="windows-title">
      <h2 id="windows-title">Idempotency keys</h2>
      <Contents attempts={delivery.attempts} table={table} />
    </section>
  );
}

function Contents({ attempts, table }: { attempts: readonly Attempt[]; table: Table }) {
  const { by, window_ms: windowMs, margin_ms: marginMs } = table.idempotency;
  if (by !== "key" || typeof windowMs !== "number" || typeof marginMs !== "number") {
    return (
      <p>{table.provider} recognises no repeat: the keys are for the ledger's own books, and no window is open.</p>
    );
  }
  const windows = windowsOf(attempts, windowMs, marginMs);
  const now = Date.now();
  return (
    <>
      <Drawing windows={windows} now={now} />
      <ul>
        {windows.map(({ key, attempts: some, safeUntil, forgottenAt }) => (
          <li>
            <Copied value={key} what="the idempotency key" />: {counted(some.length, "attempt")}; {table.provider}{" "}
            recognises a repeat until <Time at={at(forgottenAt)} />, and the ledger{" "}
            {now < safeUntil ? "counts on that until" : "has not counted on that since"} <Time at={at(safeUntil)} />.
          </li>
        ))}
      </ul>
    </>
  );
}

const WIDTH = 800;
const ROW = 34;

function Drawing({ windows, now }: { windows: readonly KeyWindow[]; now: number }) {
  const from = Math.min(...windows.map((one) => one.from));
  const until = Math.max(now, ...windows.map(({ forgottenAt }) => forgottenAt));
  const x = (ms: number): number => Math.round(((ms - from) / (until - from)) * (WIDTH - 40) + 20);
  const height = windows.length * ROW + 26;
  return (
    <svg
      class="windows"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="img"
      aria-label="the windows of the keys, told in the list below"
    >
      {windows.map(({ from: start, safeUntil, forgottenAt, attempts }, row) => (
        <g transform={`translate(0 ${row * ROW + 4})`}>
          <rect class="margin" x={x(start)} y={6} width={x(forgottenAt) - x(start)} height={14} rx={2} />
          <rect class="safe" x={x(start)} y={6} width={Math.max(1, x(safeUntil) - x(start))} height={14} rx={2} />
          {attempts.map((attempt) => (
            <line
              class={`attempt is-${attempt.verdict ?? "open"}`}
              x1={x(Date.parse(attempt.claimed_at))}
              x2={x(Date.parse(attempt.claimed_at))}
              y1={1}
              y2={25}
            />
          ))}
        </g>
      ))}
      <line class="now-line" x1={x(now)} x2={x(now)} y1={0} y2={height - 18} />
      <text x={Math.min(WIDTH - 40, Math.max(4, x(now) - 12))} y={height - 4}>
        now
      </text>
    </svg>
  );
}
