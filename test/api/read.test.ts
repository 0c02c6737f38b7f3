import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeCursor } from "../../src/api/list.ts";
import { claimMessages, fanOut, settleMessage } from "../../src/store/callback-messages.ts";
import { insertAttempt } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { until } from "../support/pipeline.ts";
import { apply, receipt } from "../support/receipts.ts";
import { type App, chat, email, fresh, openApp } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const take = async (request: Record<string, unknown>) => (await app.post(request)).body;
const read = async (id: string) => (await app.ask(`/v1/deliveries/${id}`)).body;
const ids = (body: { data: { id: string }[] }) => body.data.map(({ id }) => id);
const batch = async (requests: unknown[]) =>
  (await app.ask("/v1/deliveries/batch", { json: requests })).body.data.map(
    ({ delivery }: { delivery: { id: string } }) => delivery.id,
  ) as string[];

describe("one delivery", () => {
  test("is read with its attempts, its receipt and its attention item", async () => {
    const { id } = await take(chat());
    await insertAttempt(database.db, id, {
      settled_at: new Date(),
      verdict: "unknown",
      reason: "timeout",
      phase: "sent",
      error_code: "TIMEOUT",
      error_message: "no answer came",
    });
    await sql`
      update deliveries set state = 'needs_attention', next_attempt_at = null, settled_at = now(), in_doubt = true,
        attempt_count = 1, receipt_status = 'delivered', receipt_at = now() where id = ${id}`.execute(database.db);
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason)
      select ${id}, id, producer_id, channel, 'timeout' from deliveries where id = ${id}`.execute(database.db);
    expect(await read(id)).toMatchObject({
      state: "needs_attention",
      receipt: { status: "delivered" },
      attention: { id, reason: "timeout" },
      hold: null,
      attempts: [
        {
          number: 1,
          idempotency_key: `${id}.1`,
          verdict: "unknown",
          reason: "timeout",
          status_code: null,
          error: { code: "TIMEOUT", message: "no answer came" },
          provider_message_id: null,
          retry_after_s: null,
        },
      ],
    });
  });

  test("that does not exist, or whose id is none, is not found", async () => {
    for (const id of ["01990000-0000-7000-8000-000000000000", "7", "x", "%00", "%ff", "__proto__", "a%2Fb"]) {
      for (const path of ["", "/timeline"]) {
        expect((await app.ask(`/v1/deliveries/${id}${path}`)).body.type).toBe("/problems/not-found");
      }
      const cancelled = await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
      expect(cancelled.body.type).toBe("/problems/not-found");
    }
  });
});

describe("a hold is what the gate says now, with its end", () => {
  const held = async (change: ReturnType<typeof sql>) => {
    const { id } = await take(email());
    await sql`update deliveries set ${change} where id = ${id}`.execute(database.db);
    return (await read(id)).hold;
  };

  test("on a rung of the ladder", async () => {
    const at = "2027-01-01T00:00:00.000Z";
    expect(await held(sql`next_attempt_at = ${at}::timestamptz, attempt_count = 1`)).toEqual({
      reason: "ladder",
      until: at,
    });
  });

  test("on a paused channel, until it is resumed", async () => {
    const { id } = await take(chat());
    expect((await read(id)).hold).toBeNull();
    await app.ask("/v1/channels/telegram/pause", { json: { reason: "wrong texts" } });
    expect((await read(id)).hold).toEqual({ reason: "channel_paused", until: null });
    await app.ask("/v1/channels/telegram/resume", { method: "POST" });
    expect((await read(id)).hold).toBeNull();
  });

  test("on a channel of which this process has no credentials; it still takes deliveries", async () => {
    const bare = await openApp(database.db, { channels: new Map() });
    const { status, body } = await bare.post(email());
    expect(status).toBe(202);
    expect(body.hold).toEqual({ reason: "channel_unconfigured", until: null });
  });
});

describe("the list", () => {
  test("has every row once, though many share a millisecond and states change between the pages", async () => {
    const stem = fresh("paged");
    const to = `${stem.replace("/", "-")}@example.com`;
    const posted = await batch(Array.from({ length: 250 }, (_, i) => email({ name: `${stem}/${i}`, to })));
    for (const limit of [100, 1, 7]) {
      const seen: string[] = [];
      for (let cursor: string | null = ""; cursor !== null; ) {
        const page = await app.ask(`/v1/deliveries?to=${to}&limit=${limit}${cursor && `&cursor=${cursor}`}`);
        expect(page.body.data.length).toBeLessThanOrEqual(limit);
        seen.push(...ids(page.body));
        cursor = page.body.next_cursor;
        const [changed] = ids(page.body);
        await app.ask(`/v1/deliveries/${changed}/cancel`, { method: "POST" });
        await take(email());
      }
      expect(seen).toHaveLength(250);
      expect(seen).toEqual(posted.toReversed().toSorted((a, b) => (a < b ? 1 : -1)));
    }
  });

  test("ends with a null cursor exactly at the last row", async () => {
    const to = "exactly@example.com";
    await batch([email({ to }), email({ to })]);
    expect((await app.ask(`/v1/deliveries?to=${to}&limit=2`)).body.next_cursor).toBeNull();
    expect((await app.ask(`/v1/deliveries?to=${to}&limit=1`)).body.next_cursor).not.toBeNull();
  });

  test("is searched by name, state, channel, recipient, schedule, time, failure and receipt", async () => {
    const schedule = "search";
    const occurrence = { schedule, due_at: "2026-08-30T06:00:00Z" };
    const [a, b, c] = [
      await take(email({ name: "search a", occurrence, to: "a@example.com" })),
      await take(chat({ name: "search b", occurrence, to: 123456 })),
      await take(email({ name: "search c", occurrence })),
    ];
    await sql`
      update deliveries set state = 'failed', failure = 'refused', next_attempt_at = null, settled_at = now()
      where id = ${c.id}`.execute(database.db);
    await apply(
      database.db,
      receipt({ deliveryId: c.id, eventId: "evt_bounced", status: "bounced", provesAcceptance: false }),
    );
    await app.ask(`/v1/deliveries/${b.id}/cancel`, { method: "POST" });
    const search = async (query: string) => ids((await app.ask(`/v1/deliveries?schedule=${schedule}&${query}`)).body);
    expect(await search("")).toEqual([c.id, b.id, a.id]);
    expect(await search("name=search%20b")).toEqual([b.id]);
    expect(await search("state=cancelled")).toEqual([b.id]);
    expect(await search("channel=email")).toEqual([c.id, a.id]);
    expect(await search("to=123456")).toEqual([b.id]);
    expect(await search("failure=refused")).toEqual([c.id]);
    expect(await search("receipt=bounced&channel=email&state=failed")).toEqual([c.id]);
    expect(await search("receipt=opened")).toEqual([]);
    expect(await search("name=search")).toEqual([]);
  });

  test("has those that are claimed", async () => {
    const to = "claimed@example.com";
    const [{ id }] = [await take(email({ to })), await take(email({ to }))];
    await insertAttempt(database.db, id);
    await sql`update deliveries set state = 'claimed', next_attempt_at = null where id = ${id}`.execute(database.db);
    expect(ids((await app.ask(`/v1/deliveries?to=${to}&state=claimed`)).body)).toEqual([id]);
  });

  test("has those whose id was made by a replica whose clock is off by less than an hour", async () => {
    const { id } = await take(email());
    for (const minutes of [-59, 59]) {
      await sql`set session_replication_role = replica; update deliveries set accepted_at = now() + ${sql.lit(minutes)} * interval '1 minute'
        where id = ${sql.lit(id)}; reset session_replication_role`.execute(database.db);
      const at = Date.now() + minutes * 60_000;
      const between = `accepted_after=${new Date(at - 60_000).toISOString()}&accepted_before=${new Date(at + 60_000).toISOString()}`;
      expect(ids((await app.ask(`/v1/deliveries?${between}`)).body), String(minutes)).toEqual([id]);
    }
  });

  test("accepted_after and accepted_before leave out that very instant", async () => {
    const { id, accepted_at: at } = await take(email());
    const has = async (query: string) => ids((await app.ask(`/v1/deliveries?limit=100&${query}`)).body).includes(id);
    expect(await has(`accepted_after=${at}`)).toBe(false);
    expect(await has(`accepted_before=${at}`)).toBe(false);
    expect(await has(`accepted_after=${new Date(Date.parse(at) - 1).toISOString()}`)).toBe(true);
    expect(await has(`accepted_before=${new Date(Date.parse(at) + 1).toISOString()}`)).toBe(true);
    expect(await has(`accepted_before=${encodeURIComponent("2099-01-01T00:00:00+02:00")}`)).toBe(true);
  });

  test.each([
    ["limit=0"],
    ["limit=101"],
    ["limit=1e1"],
    ["limit="],
    ["limit=-5"],
    ["limit=10&limit=20"],
    ["state=waiting"],
    ["failure=none"],
    ["receipt=read"],
    ["name="],
    ["name=%00"],
    ["to=a%00b"],
    ["accepted_after=yesterday"],
    ["accepted_after=2026-01-01T00:00:00"],
    ["accepted_after=0000-01-01T00:00:00Z"],
    ["accepted_before=9999-12-31T23:59:59-14:00"],
    ["page=2"],
    ["__proto__=1"],
    ["State=pending"],
  ])("refuses the parameter %s", async (query) => {
    const answered = await app.ask(`/v1/deliveries?${query}`);
    expect(answered.body).toMatchObject({ status: 400, type: "/problems/invalid-parameter" });
  });

  test.each(["name=%ff", "name=%zz", "name=%", "to=%ed%a0%bd", "name=%f0%9f%98%80", "&&=", "name=a+b"])(
    "is never a failure of ours for the odd spelling %s",
    async (query) => {
      expect([200, 400]).toContain((await app.ask(`/v1/deliveries?${query}`)).status);
    },
  );

  test("refuses a cursor that is broken, or of another list", async () => {
    const id = "01990000-0000-7000-8000-000000000000";
    const good = writeCursor("deliveries", id);
    expect((await app.ask(`/v1/deliveries?cursor=${good}`)).status).toBe(200);
    for (const cursor of [
      "",
      "x",
      id,
      `${good}x`,
      `${good}=`,
      good.slice(0, -1),
      writeCursor("events", id),
      writeCursor("deliveries", "7"),
    ]) {
      const answered = await app.ask(`/v1/deliveries?cursor=${cursor}`);
      expect(answered.body, cursor).toMatchObject({ status: 400, type: "/problems/invalid-cursor" });
    }
  });
});

describe("the timeline", () => {
  test("tells everything that happened, oldest first, each with its time and type", async () => {
    const { id } = await take(email());
    await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
    await apply(database.db, receipt({ deliveryId: id, eventId: "evt_1" }));
    const { body } = await app.ask(`/v1/deliveries/${id}/timeline`);
    expect(body.data.map(({ type }: { type: string }) => type)).toEqual([
      "delivery.accepted",
      "delivery.cancelled",
      "receipt.delivered",
    ]);
    expect(body.data[1]).toMatchObject({ by: "admin" });
    expect(body.data[2]).toMatchObject({ event_id: "evt_1", status: "delivered" });
  });
});

describe("the timeline's gate holds", () => {
  const typesOf = async (id: string) =>
    (await app.ask(`/v1/deliveries/${id}/timeline`)).body.data.map(({ type }: { type: string }) => type);
  const turn = (what: "pause" | "resume") =>
    app.ask(`/v1/channels/telegram/${what}`, { json: { reason: "a secret reason" } });

  test("are those of its channel while it waited, also one that had begun before; nobody's names and notes", async () => {
    const { id: early } = await take(chat());
    await turn("pause");
    const { id: held } = await take(chat());
    const { id: other } = await take(email());
    await turn("resume");
    for (const id of [early, held, other]) await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
    await turn("pause");
    await turn("resume");
    const { id: late } = await take(chat());
    const [accepted, cancelled] = ["delivery.accepted", "delivery.cancelled"];
    expect(await typesOf(early)).toEqual([accepted, "channel.paused", "channel.resumed", cancelled]);
    expect(await typesOf(held)).toEqual(["channel.paused", accepted, "channel.resumed", cancelled]);
    expect(await typesOf(other)).toEqual([accepted, cancelled]);
    expect(await typesOf(late)).toEqual([accepted]);
    const { body } = await app.ask(`/v1/deliveries/${early}/timeline`);
    expect(body.data[1]).toEqual({
      at: expect.any(String),
      type: "channel.paused",
      channel: "telegram",
      reason: "operator",
    });
    expect(JSON.stringify(body)).not.toContain("a secret reason");
  });
});

describe("the timeline's callbacks", () => {
  test("tell what the producer was told, how often it was tried, and what came back", async () => {
    const url = "https://shop.example.com/ledger";
    await app.ask("/v1/producers/admin/callback", { method: "PUT", json: { url, types: ["delivery.*"] } });
    const { id } = await take(email());
    await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
    const callbacks = async () =>
      (await app.ask(`/v1/deliveries/${id}/timeline`)).body.data.filter(({ type }: { type: string }) =>
        type.startsWith("callback."),
      );
    const settle = async (outcome: Parameters<typeof settleMessage>[2]) => {
      // A callback begins where the feed stands, so that earlier tests' events may be among them.
      const due = { limit: 100, perCallback: 100, leaseS: 30, busy: [] };
      for (const message of await claimMessages(database.db, due)) await settleMessage(database.db, message, outcome);
    };
    await app.ask("/v1/producers/admin/callback", { method: "PUT", json: { url, types: ["delivery.cancelled"] } });
    // No further than the oldest transaction of the whole server, other tests' among them.
    const fannedOut = async () => {
      await fanOut(database.db, 100, () => "{}");
      return await callbacks();
    };
    expect(await until(fannedOut, (found) => found.length > 0)).toMatchObject([
      { type: "callback.pending", event: "delivery.cancelled", attempts: 0 },
    ]);
    await settle({ kind: "failed", status: 503, error: "503 Service Unavailable", waitS: 0, disables: null });
    expect(await callbacks()).toMatchObject([
      { type: "callback.pending", attempts: 1, status: 503, next_attempt_at: expect.stringMatching(/Z$/) },
    ]);
    await settle({ kind: "delivered", status: 204 });
    expect(await callbacks()).toMatchObject([
      { type: "callback.delivered", attempts: 2, status: 204, error: null, next_attempt_at: null },
    ]);
    await app.ask("/v1/producers/admin/callback", { method: "DELETE" });
  });
});

describe("the frozen message", () => {
  test("is read exactly as it was posted", async () => {
    const request = email();
    const { id } = await take(request);
    expect((await app.ask(`/v1/deliveries/${id}/message`)).body).toEqual({ message: request.message });
  });

  test("is null, not an error, when it is no longer kept", async () => {
    const { id } = await take(email());
    await sql`delete from messages where delivery_id = ${id}`.execute(database.db);
    expect(await app.ask(`/v1/deliveries/${id}/message`)).toMatchObject({ status: 200, body: { message: null } });
  });
});

describe("a provider's message id", () => {
  test("finds the delivery that it was given to, whether an answer or a person brought it", async () => {
    const answered = await take(chat());
    await insertAttempt(database.db, answered.id, {
      ...{ settled_at: new Date(), verdict: "accepted", reason: "accepted" },
      provider_message_id: "by-an-answer",
    });
    const doubtful = await take(chat());
    const item = await putInDoubt(database.db, doubtful.id);
    const found = { action: "mark_sent", note: "seen in the chat", provider_message_id: "by-a-person" };
    expect((await app.ask(`/v1/attention/${item}/resolve`, { json: found })).status).toBe(200);

    const by = async (id: string) => ids((await app.ask(`/v1/deliveries?provider_message_id=${id}`)).body);
    expect(await by("by-an-answer")).toEqual([answered.id]);
    expect(await by("by-a-person")).toEqual([doubtful.id]);
    expect(await by("nobodys")).toEqual([]);
  });
});
