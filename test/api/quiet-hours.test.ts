import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, email, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const NIGHT = { from: "22:00", to: "07:00", time_zone: "Europe/Berlin" };
/** Quiet from an hour ago until in an hour. */
const clock = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);
const NOW = { from: clock(-60), to: clock(60), time_zone: "UTC" };
const put = (producer: string, json: unknown, more: object = {}) =>
  app.ask(`/v1/producers/${producer}/quiet_hours`, { method: "PUT", json, ...more });
const read = async (id: string) => (await app.ask(`/v1/deliveries/${id}`)).body;

describe("a posted delivery's quiet hours", () => {
  test("are answered as they were posted", async () => {
    const { body } = await app.post(email({ quiet_hours: NIGHT }));
    expect(body.quiet_hours).toEqual(NIGHT);
    expect((await read(body.id)).quiet_hours).toEqual(NIGHT);
  });

  test("are part of the request: the same name with others is another request", async () => {
    const posted = email({ quiet_hours: NIGHT });
    await app.post(posted);
    expect((await app.post(posted)).status).toBe(200);
    const other = await app.post({ ...posted, quiet_hours: { ...NIGHT, to: "08:00" } });
    expect(other).toMatchObject({ status: 422, body: { type: "/problems/name-reused" } });
    expect(pointers(other)).toEqual(["/quiet_hours/to"]);
  });

  test.each<[unknown, string[]]>([
    [{ ...NIGHT, from: "24:00" }, ["/quiet_hours/from"]],
    [{ ...NIGHT, from: "7:00" }, ["/quiet_hours/from"]],
    [{ ...NIGHT, to: "07:60" }, ["/quiet_hours/to"]],
    [{ ...NIGHT, to: "07:00\n" }, ["/quiet_hours/to"]],
    [{ ...NIGHT, to: 7 }, ["/quiet_hours/to"]],
    [{ ...NIGHT, to: "22:00" }, ["/quiet_hours/to"]],
    [{ ...NIGHT, time_zone: "Mars/Phobos" }, ["/quiet_hours/time_zone"]],
    [{ ...NIGHT, time_zone: "+02:00" }, ["/quiet_hours/time_zone"]],
    [{ ...NIGHT, time_zone: "" }, ["/quiet_hours/time_zone"]],
    [{ ...NIGHT, time_zone: "x".repeat(5_000) }, ["/quiet_hours/time_zone"]],
    [{ ...NIGHT, days: [1] }, ["/quiet_hours/days"]],
    [{ from: "22:00" }, ["/quiet_hours/to", "/quiet_hours/time_zone"]],
    ["22:00-07:00", ["/quiet_hours"]],
    [[], ["/quiet_hours"]],
    [false, ["/quiet_hours"]],
  ])("%j is refused, with a pointer", async (quiet_hours, at) => {
    const answered = await app.post(email({ quiet_hours }));
    expect(answered.status).toBe(422);
    expect(pointers(answered)).toEqual(at);
  });
});

describe("a producer's quiet hours", () => {
  test("hold for its deliveries that say nothing; null says none", async () => {
    const key = await app.keyFor("night-shop", "deliveries:write", "deliveries:read");
    expect(await put("night-shop", NIGHT)).toMatchObject({
      status: 200,
      body: { name: "night-shop", quiet_hours: NIGHT },
    });
    const own = { ...NIGHT, from: "20:00" };
    const said = [];
    for (const more of [{}, { quiet_hours: null }, { quiet_hours: own }]) {
      said.push((await app.post(email(more), { key })).body.quiet_hours);
    }
    expect(said).toEqual([NIGHT, null, own]);
  });

  test("end when they are deleted, once or twice; what they held is due at once", async () => {
    const key = await app.keyFor("loud-shop", "deliveries:write", "deliveries:read");
    await put("loud-shop", NOW);
    const { body } = await app.post(email(), { key });
    const until = new Date(Date.now() + 3_600_000);
    await sql`update deliveries set hold_reason = 'quiet_hours', next_attempt_at = ${until} where id = ${body.id}`.execute(
      database.db,
    );
    app.woken.length = 0;
    for (const _time of [1, 2]) {
      const answered = await app.ask("/v1/producers/loud-shop/quiet_hours", { method: "DELETE" });
      expect(answered.status).toBe(204);
    }
    expect(app.woken).toContain("email");
    const after = await read(body.id);
    expect(after.hold).toBeNull();
    expect(Date.parse(after.next_attempt_at)).toBeLessThanOrEqual(Date.now());
    expect(after.quiet_hours).toBeNull();
  });

  test("are refused like a delivery's", async () => {
    await app.keyFor("night-shop", "deliveries:write");
    expect(pointers(await put("night-shop", { ...NIGHT, from: "x" }))).toEqual(["/from"]);
    expect(pointers(await put("night-shop", {}))).toEqual(["/from", "/to", "/time_zone"]);
    expect((await put("night-shop", null)).status).toBe(422);
  });

  test("of a producer that does not exist are not found, whatever its name", async () => {
    for (const name of ["nowhere", "%00", "%ff", "a%2Fb", "__proto__", "x".repeat(2_000)]) {
      expect((await put(name, NIGHT)).status, name).toBe(404);
      expect((await app.ask(`/v1/producers/${name}/quiet_hours`, { method: "DELETE" })).status, name).toBe(404);
    }
  });

  test("are an event of the producer's, with who set them", async () => {
    await app.keyFor("told-shop", "deliveries:write");
    await put("told-shop", NIGHT);
    const { rows } = await sql<{ data: unknown }>`
      select e.data from events e join producers p on p.id = e.producer_id
      where p.name = 'told-shop' and e.type = 'producer.quiet_hours'`.execute(database.db);
    expect(rows).toEqual([{ data: { quiet_hours: NIGHT, by: "admin" } }]);
  });

  test("a producer's key reaches its own alone", async () => {
    const key = await app.keyFor("own-shop", "producers:read", "producers:write");
    await app.keyFor("other-shop", "deliveries:write");
    expect((await put("own-shop", NIGHT, { key })).status).toBe(200);
    expect((await put("other-shop", NIGHT, { key })).status).toBe(404);
    expect((await app.ask("/v1/producers/other-shop/quiet_hours", { method: "DELETE", key })).status).toBe(404);
    const { body } = await app.ask("/v1/producers", { key });
    expect(body.data.map(({ name }: { name: string }) => name)).toEqual(["own-shop"]);
  });
});

describe("producers", () => {
  test("are listed page by page, each once", async () => {
    for (let i = 0; i < 5; i += 1) await app.keyFor(`page-${i}`, "deliveries:write");
    const names: string[] = [];
    for (let cursor = ""; ; ) {
      const { body } = await app.ask(`/v1/producers?limit=2${cursor && `&cursor=${cursor}`}`);
      names.push(...body.data.map(({ name }: { name: string }) => name));
      if (body.next_cursor === null) break;
      cursor = body.next_cursor;
    }
    expect(names).toEqual(expect.arrayContaining(["admin", "page-0", "page-4"]));
    expect(new Set(names).size).toBe(names.length);
  });

  test("the list takes no other parameters, and no other list's cursor", async () => {
    expect((await app.ask("/v1/producers?x=1")).body.type).toBe("/problems/invalid-parameter");
    expect((await app.ask("/v1/producers?cursor=x")).body.type).toBe("/problems/invalid-cursor");
  });
});

describe("what holds a delivery", () => {
  const change = (id: string, set: object) =>
    database.db
      .updateTable("deliveries")
      .set(set)
      .where("id", "=", id as never)
      .execute();
  const channel = (set: object) => database.db.updateTable("channels").set(set).where("id", "=", "email").execute();
  const inAnHour = new Date(Date.now() + 3_600_000);

  test("is quiet hours, also before a worker has looked at it", async () => {
    const { body } = await app.post(email({ quiet_hours: NOW }));
    expect(body.hold).toMatchObject({ reason: "quiet_hours" });
    expect(body.hold.until.slice(11, 16)).toBe(NOW.to);
  });

  test.each(["quiet_hours", "rate_limited"] as const)("is %s, once it was moved to where that ends", async (reason) => {
    const { body } = await app.post(email());
    await change(body.id, { hold_reason: reason, next_attempt_at: inAnHour });
    expect((await read(body.id)).hold).toEqual({ reason, until: inAnHour.toISOString() });
    await change(body.id, { attempt_count: 1 });
    expect((await read(body.id)).hold).toMatchObject({ reason });
    await channel({ paused_at: new Date(), pause_reason: "operator" });
    expect((await read(body.id)).hold).toEqual({ reason: "channel_paused", until: null });
    await channel({ paused_at: null, pause_reason: null });
  });

  test("is its own time first: scheduled, or a rung", async () => {
    const { body } = await app.post(email({ quiet_hours: NOW, deliver_at: inAnHour.toISOString() }));
    expect(body.hold).toMatchObject({ reason: "scheduled" });
    await change(body.id, { attempt_count: 1, hold_reason: "ladder" });
    expect((await read(body.id)).hold).toMatchObject({ reason: "ladder" });
  });

  test("is the breaker before quiet hours, and the channel's rate after them", async () => {
    const { body } = await app.post(email({ quiet_hours: NOW }));
    await channel({ breaker_opened_at: new Date(), breaker_open_until: inAnHour, rate_free_at: inAnHour });
    expect((await read(body.id)).hold).toEqual({ reason: "provider_down", until: inAnHour.toISOString() });
    await channel({ breaker_opened_at: null, breaker_open_until: null });
    expect((await read(body.id)).hold).toMatchObject({ reason: "quiet_hours" });
    const { body: loud } = await app.post(email({ quiet_hours: null }));
    expect(loud.hold).toEqual({ reason: "rate_limited", until: inAnHour.toISOString() });
    await channel({ rate_free_at: null });
  });
});
