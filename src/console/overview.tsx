import { CallsChart, LatencyChart } from "./charts.tsx";
import type { Answer } from "./client.ts";
import { may, type Page } from "./env.ts";
import { Form, show } from "./layout.tsx";
import { address, Badge, Facts, Notice, Text, Time } from "./parts.tsx";
import { counted, duration } from "./text.ts";

type Channel = Answer<"getChannels">["data"][number];
type Activity = Answer<"getActivity">["data"][number];
type Summary = Answer<"getAttentionSummary">;

const PATH = "/console/overview";
/** Lists count no further. */
const MOST = 10_000;

export async function showOverview(page: Page) {
  const ask = page.get("ask");
  const [channels, activity, summary] = await Promise.all([
    ask("getChannels"),
    ask("getActivity"),
    ask("getAttentionSummary"),
  ]);
  const now = Date.now();
  return show(
    page,
    "Overview",
    <>
      <h1>Overview</h1>
      <div id="channels" hx-get={PATH} hx-trigger="every 10s" hx-select="#channels" hx-swap="outerHTML">
        {channels.data.map((channel) => (
          <Overview
            page={page}
            channel={channel}
            activity={activity.data.find((one) => one.channel === channel.id)}
            summary={summary}
            now={now}
          />
        ))}
        {channels.data.length === 0 && (
          <p class="empty">There is no channel yet: set RESEND_API_KEY or TELEGRAM_BOT_TOKEN.</p>
        )}
      </div>
    </>,
  );
}

const many = (count: number): string => (count >= MOST ? "10,000 or more" : count.toLocaleString("en"));

function Overview({
  page,
  channel,
  activity,
  summary,
  now,
}: {
  page: Page;
  channel: Channel;
  activity: Activity | undefined;
  summary: Summary;
  now: number;
}) {
  const { breaker, verdicts, rate } = channel;
  const open = summary.data.filter((row) => row.channel === channel.id);
  const minutes = activity?.minutes ?? [];
  return (
    <section class="channel" aria-labelledby={`channel-${channel.id}`}>
      <h2 id={`channel-${channel.id}`}>
        {channel.id} <span class="quiet">{channel.provider}</span> {channel.paused && <Badge of="paused" />}{" "}
        {breaker.state === "open" && <Badge of="provider_down" />}{" "}
        {!channel.configured && <Badge of="no_credentials" />}
      </h2>
      <Held channel={channel} />
      <Facts
        rows={[
          ["Waiting", many(channel.backlog)],
          ["Oldest due", channel.oldest_due_at ? <Time at={channel.oldest_due_at} /> : "none"],
          ["In flight", channel.in_flight.toLocaleString("en")],
          [
            "Last 4 to 5 minutes",
            `${verdicts.accepted} accepted, ${verdicts.refused} refused, ${verdicts.deferred} deferred, ${verdicts.unknown} unknown; ${verdicts.calls_per_minute} calls a minute`,
          ],
          ["Last hour", lastHour(minutes)],
          ["Rate", rate.per_second === null ? "no limit" : `${rate.per_second} calls a second (${rate.source})`],
          [
            "Needs attention",
            open.length === 0 ? (
              "nothing"
            ) : (
              <a href={address("/console/attention", { channel: channel.id })}>
                {counted(
                  open.reduce((sum, row) => sum + row.count, 0),
                  "item",
                )}
                , the oldest {duration(Math.max(...open.map((row) => row.oldest_age_s)))}
              </a>
            ),
          ],
          [
            "Next rungs",
            (activity?.rungs ?? []).length === 0 ? (
              "none in the next ten minutes"
            ) : (
              <ul class="inline">
                {activity?.rungs.map(({ at, count }) => (
                  <li>
                    {count.toLocaleString("en")} in the minute from <Time at={at} />
                  </li>
                ))}
              </ul>
            ),
          ],
          ["Receipts, last hour", receiptsOf(activity)],
          ["Latest webhook", <Time at={channel.last_webhook_at} />],
        ]}
      />
      {minutes.length > 0 ? (
        <div class="charts">
          <CallsChart minutes={minutes} now={now} />
          <LatencyChart minutes={minutes} now={now} />
        </div>
      ) : (
        <p class="quiet">No call in the last hour.</p>
      )}
      {may(page.get("session"), "channels:write") && <Switch page={page} channel={channel} />}
    </section>
  );
}

function lastHour(minutes: Activity["minutes"]): string {
  const sum = (verdict: "accepted" | "refused" | "deferred" | "unknown") =>
    minutes.reduce((total, minute) => total + minute[verdict], 0).toLocaleString("en");
  return `${sum("accepted")} accepted, ${sum("refused")} refused, ${sum("deferred")} deferred, ${sum("unknown")} unknown`;
}

const receiptsOf = (activity: Activity | undefined): string =>
  (activity?.receipts ?? [])
    .map(({ status, count }) => `${count.toLocaleString("en")} ${status ?? "of acceptance"}`)
    .join(", ") || "none";

function Held({ channel: { paused, breaker } }: { channel: Channel }) {
  return (
    <>
      {paused && (
        <Notice>
          Paused <Time at={paused.at} />
          {paused.until && (
            <>
              {" "}
              until <Time at={paused.until} />
            </>
          )}
          {paused.by && (
            <>
              {" "}
              by <Text value={paused.by} max={160} />
            </>
          )}
          : <Text value={paused.note ?? paused.reason.replaceAll("_", " ")} max={500} />. No attempt is made; deliveries
          are still accepted, and wait.
        </Notice>
      )}
      {breaker.state === "open" && (
        <Notice kind="error">
          The breaker is open since <Time at={breaker.opened_at} />: the provider fails for everybody. A single probe is
          made <Time at={breaker.until} />, and the first that is answered closes it.
        </Notice>
      )}
    </>
  );
}

function Switch({ page, channel }: { page: Page; channel: Channel }) {
  const isPaused = channel.paused !== null;
  return (
    <details data-keep={`switch-${channel.id}`}>
      <summary>{isPaused ? "Resume this channel" : "Pause this channel"}</summary>
      <Form session={page.get("session")} action={`${PATH}/${isPaused ? "resume" : "pause"}`} class="row">
        <input type="hidden" name="channel" value={channel.id} />
        <label>
          <span>Why</span>
          <input name="reason" required={!isPaused} maxlength={500} autocomplete="off" />
        </label>
        <button type="submit" class="primary">
          {isPaused ? "Resume" : "Pause"} {channel.id}
        </button>
      </Form>
    </details>
  );
}

export async function pause(page: Page) {
  const sent = page.get("sent");
  await page.get("ask")("postPause", { params: { id: sent.one("channel") }, body: { reason: sent.one("reason") } });
  return page.redirect(PATH, 303);
}

export async function resume(page: Page) {
  const sent = page.get("sent");
  const reason = sent.one("reason");
  await page.get("ask")("postResume", { params: { id: sent.one("channel") }, body: { ...(reason && { reason }) } });
  return page.redirect(PATH, 303);
}
