import type { Child } from "hono/jsx";
import { type Attempt, type Delivery, Seen } from "./attempts.tsx";
import type { Answer } from "./client.ts";
import { Badge, Text, Time } from "./parts.tsx";
import { counted } from "./text.ts";
import { actionName, HOLDS } from "./words.ts";

type Entry = Answer<"getTimeline">["data"][number];

/** An email that is opened again and again has thousands. */
const SHOWN = 500;

/** Everything that happened, oldest first; at its end what holds the delivery now. */
export function Timeline({ entries, delivery }: { entries: readonly Entry[]; delivery: Delivery }) {
  const { attempts, hold } = delivery;
  const left = Math.max(0, entries.length - SHOWN);
  return (
    <section aria-labelledby="timeline-title">
      <h2 id="timeline-title">Timeline</h2>
      <ol class="timeline">
        {left > 0 && <li>{counted(left, "earlier entry is", "earlier entries are")} in the raw JSON (below).</li>}
        {entries.slice(left).map((entry) => (
          <li>
            <div class="when">
              <Time at={entry.at} />
            </div>
            <div>
              <strong>{entry.type}</strong> <Told entry={entry} attempts={attempts} />
            </div>
          </li>
        ))}
        {hold && (
          <li>
            <div class="when">now</div>
            <div>
              <strong>held</strong> {HOLDS[hold.reason]}
              {hold.until && (
                <>
                  , until <Time at={hold.until} />
                </>
              )}
            </div>
          </li>
        )}
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
              , with a lease until <Time at={attempt.lease_expires_at} />
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
    case "callback.delivered":
    case "callback.pending":
    case "callback.given_up":
      return (
        <>
          the producer {CALLBACKS[entry.type]} of {shown(entry["event"])}: {counted(Number(entry["attempts"]), "post")}
          {entry["status"] !== null && `, status ${shown(entry["status"])}`}
          {entry["error"] !== null && (
            <>
              , “<Text value={shown(entry["error"])} max={300} />”
            </>
          )}
          {entry["next_attempt_at"] !== null && (
            <>
              , posted again <Time at={text(entry["next_attempt_at"])} />
            </>
          )}
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

const CALLBACKS = {
  "callback.delivered": "was told",
  "callback.pending": "is to be told",
  "callback.given_up": "could not be told",
} as const;

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
