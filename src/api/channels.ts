import type { z } from "zod";
import { pacingOf } from "../ledger/pacing.ts";
import { PROVIDERS } from "../providers/index.ts";
import { listCounts } from "../store/call-counts.ts";
import {
  CHANNEL_ID,
  type ChannelHealth,
  listChannelIds,
  listChannels,
  listRungs,
  pauseChannel,
  type RecentCalls,
  resumeChannel,
} from "../store/channels.ts";
import { countReceipts } from "../store/receipts.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody, readOptionalJsonBody } from "./json.ts";
import { invalid, Problem } from "./problem.ts";
import * as schemas from "./schemas.ts";

const noSuchChannel = () => new Problem("not-found", "there is no such channel");

function channelId(context: ApiContext): string {
  const id = context.req.param("id") ?? "";
  if (!CHANNEL_ID.test(id)) throw noSuchChannel();
  return id;
}

type View = z.infer<typeof schemas.channel>;

function verdictsOf({ accepted, refused, deferred, unknown, minutes, meanMs, maxMs }: RecentCalls): View["verdicts"] {
  const calls = accepted + refused + deferred + unknown;
  return {
    ...{ accepted, refused, deferred, unknown },
    calls_per_minute: Math.round((calls / minutes) * 10) / 10,
    latency_ms: { mean: meanMs, max: maxMs },
  };
}

export function channelHandlers(deps: ApiDeps) {
  function view(row: ChannelHealth): View {
    return {
      id: row.id,
      provider: row.provider,
      configured: deps.channels.has(row.id),
      paused:
        row.pausedAt === null
          ? null
          : {
              at: row.pausedAt.toISOString(),
              until: row.pausedUntil?.toISOString() ?? null,
              reason: row.pauseReason ?? "operator",
              note: row.pauseNote,
              by: row.pausedBy,
            },
      backlog: row.backlog,
      in_flight: row.inFlight,
      oldest_due_at: row.oldestDueAt?.toISOString() ?? null,
      breaker: {
        state: row.breakerOpenedAt === null ? "closed" : "open",
        opened_at: row.breakerOpenedAt?.toISOString() ?? null,
        until: row.breakerOpenUntil?.toISOString() ?? null,
      },
      rate: rateOf(row),
      verdicts: verdictsOf(row.calls),
      last_webhook_at: row.lastWebhookAt?.toISOString() ?? null,
    };
  }

  /** The rate that this process would obey. */
  function rateOf(row: ChannelHealth): View["rate"] {
    const limits = PROVIDERS[row.provider]?.capability.limits;
    const pacing = deps.channels.get(row.id)?.pacing ?? (limits ? pacingOf(limits, null) : null);
    if (pacing?.perSecond === "learned") return { per_second: row.learnedRate, source: "learned" };
    return { per_second: pacing?.perSecond ?? null, source: pacing?.source ?? "provider" };
  }

  async function answer(context: ApiContext, id: string, changed: unknown): Promise<Response> {
    const row = changed === null ? undefined : (await listChannels(deps.db)).find((channel) => channel.id === id);
    if (!row) throw noSuchChannel();
    return context.json(view(row));
  }

  const getChannels: Handler = async (context) =>
    context.json({ data: (await listChannels(deps.db)).map(view), next_cursor: null });

  const getActivity: Handler = async (context) => {
    const [channels, counts, rungs, receipts] = await Promise.all([
      listChannelIds(deps.db),
      listCounts(deps.db),
      listRungs(deps.db),
      countReceipts(deps.db),
    ]);
    const ofOne = <Row extends { channel: string }>(rows: readonly Row[], id: string) =>
      rows.filter(({ channel }) => channel === id);
    const data = channels.map(
      (channel): z.infer<typeof schemas.channelActivity> => ({
        channel,
        minutes: ofOne(counts, channel).map(({ at, accepted, refused, deferred, unknown, meanMs, maxMs }) => ({
          ...{ at: at.toISOString(), accepted, refused, deferred, unknown },
          latency_ms: { mean: meanMs, max: maxMs },
        })),
        rungs: ofOne(rungs, channel).map(({ at, count }) => ({ at: at.toISOString(), count })),
        receipts: ofOne(receipts, channel).map(({ status, count }) => ({ status, count })),
      }),
    );
    return context.json({ data, next_cursor: null });
  };

  const postPause: Handler = async (context) => {
    const id = channelId(context);
    const parsed = schemas.pauseRequest.safeParse(await readJsonBody(context, deps.maxBodyBytes));
    if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
    const by = context.get("principal").keyName;
    const row = await pauseChannel(deps.db, id, by, parsed.data.reason);
    deps.log.warn({ event: "channel.paused", channel: id, by }, "a channel was paused");
    return await answer(context, id, row);
  };

  const postResume: Handler = async (context) => {
    const id = channelId(context);
    const parsed = schemas.resumeRequest.safeParse(await readOptionalJsonBody(context, deps.maxBodyBytes));
    if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
    const by = context.get("principal").keyName;
    const row = await resumeChannel(deps.db, id, by, parsed.data.reason ?? null);
    deps.wake([id]);
    deps.log.warn({ event: "channel.resumed", channel: id, by }, "a channel was resumed");
    return await answer(context, id, row);
  };

  return { getChannels, getActivity, postPause, postResume };
}
