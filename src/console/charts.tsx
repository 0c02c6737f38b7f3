import type { Child } from "hono/jsx";
import type { Answer } from "./client.ts";

type Activity = Answer<"getActivity">["data"][number];

const MINUTES = 60;
const BAR = 8;
const WIDTH = MINUTES * BAR;
const HEIGHT = 60;
/** From the bottom up. */
const VERDICTS = ["accepted", "refused", "deferred", "unknown"] as const;

/** Where a minute's bar begins; the latest is at the right edge. */
const leftOf = (at: string, now: number): number =>
  (Math.floor(Date.parse(at) / 60_000) - Math.floor(now / 60_000) + MINUTES - 1) * BAR;

function Chart({ label, caption, children }: { label: string; caption: Child; children: Child }) {
  return (
    <figure>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} class="chart" role="img" aria-label={label} preserveAspectRatio="none">
        {children}
      </svg>
      <figcaption>{caption}</figcaption>
    </figure>
  );
}

/** The calls of the last hour by the minute, one bar a minute, coloured by what they proved. */
export function CallsChart({ minutes, now }: { minutes: Activity["minutes"]; now: number }) {
  const total = (minute: Activity["minutes"][number]) => VERDICTS.reduce((sum, verdict) => sum + minute[verdict], 0);
  const highest = Math.max(1, ...minutes.map(total));
  return (
    <Chart
      label={`calls a minute in the last hour, ${highest} at most`}
      caption={
        <>
          calls a minute, from an hour ago to now; {highest.toLocaleString("en")} at most:{" "}
          {VERDICTS.map((verdict) => (
            <span class="legend">
              <svg viewBox="0 0 10 10" class="chart swatch" aria-hidden="true">
                <rect class={`is-${verdict}`} width={10} height={10} />
              </svg>{" "}
              {verdict}
            </span>
          ))}
        </>
      }
    >
      {minutes.map((minute) => {
        const x = leftOf(minute.at, now);
        let y = HEIGHT;
        return VERDICTS.map((verdict) => {
          if (minute[verdict] === 0) return null;
          const height = Math.max(1, (minute[verdict] / highest) * (HEIGHT - 2));
          y -= height;
          return (
            <rect
              class={`is-${verdict}`}
              x={x}
              y={Number(y.toFixed(2))}
              width={BAR - 1}
              height={Number(height.toFixed(2))}
            />
          );
        });
      })}
    </Chart>
  );
}

/** How long calls took, by the minute: the mean as a bar, the longest as a mark. */
export function LatencyChart({ minutes, now }: { minutes: Activity["minutes"]; now: number }) {
  const highest = Math.max(1, ...minutes.map(({ latency_ms }) => latency_ms.max));
  const y = (ms: number): number => Number((HEIGHT - (ms / highest) * (HEIGHT - 2)).toFixed(2));
  return (
    <Chart
      label={`latency in the last hour, ${Math.round(highest)} milliseconds at most`}
      caption={
        <>
          latency, mean (bar) and longest (mark), from an hour ago to now; {Math.round(highest).toLocaleString("en")} ms
          at most
        </>
      }
    >
      {minutes.map(({ at, latency_ms: { mean, max } }) => {
        const x = leftOf(at, now);
        return (
          <>
            <rect class="mean" x={x} y={y(mean)} width={BAR - 1} height={HEIGHT - y(mean)} />
            <rect class="max" x={x} y={y(max)} width={BAR - 1} height={1.5} />
          </>
        );
      })}
    </Chart>
  );
}
