import { crc32 } from "node:zlib";
import { z } from "zod";
import { type EventRow, type FeedPage, type Position, readFeed, readNews, START } from "../store/feed.ts";
import { createArrivals } from "./arrivals.ts";
import { visibleTo } from "./auth.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { readQuery } from "./list.ts";
import { Problem } from "./problem.ts";
import type { event } from "./schemas/events.ts";

const MAX_LIMIT = 1_000;
const MAX_WAIT_S = 30;

const number = (min: number, max: number, ifNone: number) =>
  z
    .string()
    .regex(/^(0|[1-9]\d{0,3})$/, `must be a whole number from ${min} to ${max}`)
    .transform(Number)
    .pipe(z.int().min(min, `must be at least ${min}`).max(max, `must be at most ${max}`))
    .default(ifNone)
    .meta({ override: { type: "integer", minimum: min, maximum: max, default: ifNone } });

const TYPE = /^[a-z_]+\.(?:[a-z_]+|\*)$/;

/** A list of types as one regular expression, which PostgreSQL and JavaScript read alike. */
const types = z
  .string()
  .max(2_000)
  .refine(
    (list) => list.split(",").every((type) => TYPE.test(type)),
    "must be types like delivery.sent or prefixes like receipt.*, with commas between them",
  )
  .transform((list) => `^(?:${list.replaceAll(".", "\\.").replaceAll("*", "[a-z_]+").replaceAll(",", "|")})$`);

export const eventsQuery = z.strictObject({
  after: z.string().max(200).optional().meta({ description: "next_cursor of the page before; none: the beginning" }),
  types: types.optional().meta({
    description: "only these: types and prefixes that end in .*, with commas between them",
    override: { type: "string", maxLength: 2_000, examples: ["delivery.*,receipt.bounced"] },
  }),
  limit: number(1, MAX_LIMIT, 100),
  wait: number(0, MAX_WAIT_S, 0).meta({ description: "seconds to wait for an event when there is none" }),
});

/** The feed (design, section 6): its events in the order of their commits, with a wait for those to come. */
export function eventHandlers(deps: ApiDeps) {
  const arrivals = createArrivals((since) => readNews(deps.db, since), deps.stopping);

  const getEvents: Handler = async (context) => {
    const query = readQuery(context, eventsQuery);
    const from = query.after === undefined ? START : readPosition(query.after);
    const page = await pageFor(context, from, query);
    return context.json({
      data: page.events.map((row) => eventView(row, visibleTo(context) === null)),
      next_cursor: writePosition(page.next),
      has_more: page.hasMore,
    });
  };

  /** Reads; while nothing is there, waits and reads on, until the time is over. */
  async function pageFor(context: ApiContext, from: Position, query: z.infer<typeof eventsQuery>): Promise<FeedPage> {
    const sought = { producerId: visibleTo(context), types: query.types ?? null };
    const pattern = sought.types === null ? null : new RegExp(sought.types);
    const endsAt = performance.now() + query.wait * 1_000;
    const clock = context.get("clock");
    for (let after = from; ; ) {
      const page = await readFeed(deps.db, { ...sought, after, limit: query.limit });
      if (page.horizon <= from.tx) throw new Problem("invalid-cursor", AHEAD);
      const leftMs = endsAt - performance.now();
      if (page.events.length > 0 || page.hasMore || leftMs <= 0) return page;
      after = page.next;
      clock.stand();
      const awaited = { producerId: sought.producerId, types: pattern, horizon: page.horizon };
      const news = await arrivals.wait(awaited, leftMs, context.req.raw.signal);
      clock.run();
      if (!news) return page;
    }
  }

  return { getEvents };
}

const AHEAD = "the cursor is ahead of every event: it is of another ledger, or of this one before it was restored";

const eventView = (row: EventRow, toOperator: boolean): z.infer<typeof event> => ({
  id: `${row.tx}-${row.id}`,
  type: row.type,
  at: row.at.toISOString(),
  delivery_id: row.delivery_id,
  ...(toOperator && { producer: row.producer }),
  data: row.data,
});

/** With a sum over it: a cursor that lost its end would be another place, and events would be skipped or come twice. */
function writePosition({ tx, id }: Position): string {
  const place = `events:${tx}:${id}`;
  return Buffer.from(`${place}:${crc32(place).toString(16)}`).toString("base64url");
}

/** What PostgreSQL holds in 64 bits. */
const MAX_NUMBER = 2n ** 63n - 1n;

export function readPosition(cursor: string): Position {
  const text = Buffer.from(cursor, "base64url").toString("latin1");
  const [, tx, id] = /^events:(\d{1,19}):(\d{1,19}):[0-9a-f]{1,8}$/.exec(text) ?? [];
  const position = { tx: BigInt(tx ?? 0), id: BigInt(id ?? 0) };
  const fits = position.tx <= MAX_NUMBER && position.id <= MAX_NUMBER;
  if (tx === undefined || !fits || writePosition(position) !== cursor) {
    throw new Problem("invalid-cursor", "the cursor is not one of this feed");
  }
  return position;
}
