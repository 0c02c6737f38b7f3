import type { Child } from "hono/jsx";
import { type Attempt, Seen } from "./attempts.tsx";
import type { Answer } from "./client.ts";

import { Badge, Text, Time } from "./parts.tsx";
import { actionName } from "./words.ts";

type Entry = Answer<"getTimeline">["data"][number];

/** Everything that happened, oldest first. */
export function Timeline({ entries, attempts }: { entries: readonly Entry[]; attempts: readonly Attempt[] }) {
  return (
    <section aria-labelledby="timeline-title">
      <h2 id="timeline-title">Timeline</h2>
      <ol class="timeline">
        {entries.map((entry) => (
          <li>
            <div class="when">
              <Time at={entry.at} />
            </div>
            <div>
              <strong>{entry.type}</strong> <Told entry={entry} attempts={attempts} />
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const shown = (value: unknown): string => (typeof value === "object" ? JSON.stringify(value) : String(value));

function Told({ entry, attempts }: { entry: Entry; attempts: readonly Attempt[] }): Child {
  const attempt = attempts.find(({ number }) => number === entry["attempt"]);
  switch (entry.type) {
    case "delivery.accepted":
      return "accepted, frozen and committed";
    case "delivery.claimed":
      return (
        <>
          attempt {shown(entry["attempt"])} is claimed by <code>{text(entry["claimed_by"]).slice(0, 8)}</code>
          {attempt && (
            <>
              , its lease ends <Time at={attempt.lease_expires_at} />
            </>
          )}
        </>
      );
    case "attention.resolved":
      return (
        <>
          <Text value={text(entry["by"])} max={160} /> decided “{actionName(text(entry["action"]))}”: “
          <Text value={text(entry["note"])} max={2000} />”
        </>
      );
    default:
      return (
        <>
          {attempt && entry["verdict"] ? (
            <>
              attempt {attempt.number}: <Badge of={text(entry["verdict"])} />{" "}
              {text(entry["reason"]).replaceAll("_", " ")} (
              <Seen attempt={attempt} />)
            </>
          ) : null}{" "}
          <Rest entry={entry} without={attempt ? TOLD : []} />
        </>
      );
  }
}

const TOLD = ["attempt", "verdict", "reason", "phase", "status_code", "error_code"];

/** Whatever else the event says. */
function Rest({ entry, without }: { entry: Entry; without: readonly string[] }) {
  const rest = Object.entries(entry).filter(
    ([name, value]) => !["at", "type", "item", ...without].includes(name) && value !== null && value !== undefined,
  );
  return (
    <>
      {rest.map(([name, value], index) => (
        <>
          {index > 0 && ", "}
          <span class="quiet">{name.replaceAll("_", " ")}</span>{" "}
          {name.endsWith("_at") || name === "until" ? (
            <Time at={shown(value)} />
          ) : (
            <Text value={shown(value)} max={500} />
          )}
        </>
      ))}
    </>
  );
}
