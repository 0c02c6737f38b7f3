import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { chat, email, fresh } from "../api/open-app.ts";
import { insertAttempt } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { apply, receipt } from "../support/receipts.ts";
import { openConsole, type SignedIn, signIn } from "./open-console.ts";

let database: TestDatabase;
let app: Awaited<ReturnType<typeof openConsole>>;
let ada: SignedIn;
beforeAll(async () => {
  database = await testDatabase();
  app = await openConsole(database.db);
  ada = await signIn(app.visit);
});
afterAll(() => database.close());

const take = async (request: Record<string, unknown>): Promise<string> => (await app.post(request)).body.id;
/** What the page says, without its markup. */
const read = async (path: string) =>
  (await (await ada.get(path)).text())
    .replaceAll(/<[^>]+>/g, " ")
    .replaceAll(/\s+/g, " ")
    .replaceAll("&#39;", "'");
const pageOf = (id: string) => read(`/console/deliveries/${id}`);
const settle = (id: string, assignments: string) =>
  sql`update deliveries set ${sql.raw(assignments)}, next_attempt_at = null where id = ${id}`.execute(database.db);

describe("a delivery's page says in words what may happen next, and when", () => {
  test.each<[string, () => Promise<string>, string]>([
    ["that waits for a worker", () => take(email()), "It waits for a free worker. Attempt 1 is next"],
    [
      "that waits for its time",
      () => take(email({ deliver_at: new Date(Date.now() + 7_200_000).toISOString() })),
      "It is held: its time has not come",
    ],
    [
      "whose time is limited",
      () => take(email({ expires_at: new Date(Date.now() + 7_200_000).toISOString() })),
      "If that is not by",
    ],
    [
      "that waits for a repeat, and may have been sent already",
      async () => {
        const id = await take(email({ expires_at: new Date(Date.now() + 7_200_000).toISOString() }));
        const settled = { settled_at: new Date(), verdict: "unknown", reason: "timeout", phase: "sent" };
        await insertAttempt(database.db, id as never, settled);
        await sql`update deliveries set attempt_count = 1, in_doubt = true where id = ${id}`.execute(database.db);
        return id;
      },
      "It may have been sent already : what became of attempt 1 is not known. The next attempt repeats it under the same key",
    ],
    [
      "that is under way",
      async () => {
        const id = await take(email());
        await insertAttempt(database.db, id as never);
        await settle(id, "state = 'claimed', attempt_count = 1");
        return id;
      },
      "Attempt 1 is under way since",
    ],
    [
      "that was refused",
      async () => {
        const id = await take(email());
        await settle(id, "state = 'failed', failure = 'refused', settled_at = now()");
        return id;
      },
      "It was not sent: the provider refused it.",
    ],
    [
      "that was used up",
      async () => {
        const id = await take(email());
        await settle(id, "state = 'failed', failure = 'exhausted', settled_at = now()");
        return id;
      },
      "It was not sent: four attempts, and none was accepted.",
    ],
    [
      "that is in doubt",
      async () => {
        const id = await take(chat());
        await putInDoubt(database.db, id as never);
        return id;
      },
      "It may or may not have been sent. Nothing more is sent until a person decides",
    ],
    [
      "that was cancelled",
      async () => {
        const id = await take(email());
        await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
        return id;
      },
      "It was cancelled before anything was sent.",
    ],
    [
      "that a person marked as sent",
      async () => {
        const id = await take(chat());
        const item = await putInDoubt(database.db, id as never);
        await ada.post("/console/attention/resolutions", { ids: item, action: "mark_sent", note: "seen" });
        return id;
      },
      "“ seen ”. The provider has not confirmed it. Nothing more is sent.",
    ],
    [
      "whose provider reported",
      async () => {
        const id = await take(email());
        await insertAttempt(database.db, id as never, {
          provider_message_id: "em_9",
          settled_at: new Date(),
          verdict: "accepted",
          reason: "accepted",
        });
        await settle(id, "state = 'sent', settled_at = now(), attempt_count = 1");
        await apply(database.db, receipt({ deliveryId: id as never, eventId: "evt_words" }));
        return id;
      },
      "Its latest word is “delivered”",
    ],
  ])("%s", async (_, make, words) => {
    expect(await pageOf(await make())).toContain(words);
  });

  test("what is not possible is told, and no repeat is called safe that is not offered", async () => {
    const id = await take(email({ expires_at: new Date(Date.now() + 1_000).toISOString() }));
    await putInDoubt(database.db, id as never);
    expect(await pageOf(id)).toContain("A repeat under the same key is safe until");
    await expect.poll(() => pageOf(id), { timeout: 5_000 }).not.toContain("A repeat under the same key is safe until");
    expect(await pageOf(id)).toContain("Not possible: resend, fresh key (it has expired");
  });

  test("when the provider forgets the key is drawn and told, where it remembers keys at all", async () => {
    const [mail, telegram] = [await take(email()), await take(chat())];
    await putInDoubt(database.db, mail as never, { agoMs: 3_600_000 });
    await putInDoubt(database.db, telegram as never);
    const page = await (await ada.get(`/console/deliveries/${mail}`)).text();
    expect(page).toContain('<svg class="windows"');
    expect(await pageOf(mail)).toMatch(
      /resend recognises a repeat until .* UTC \(in 2[34] h\) , and the ledger counts on that until/,
    );
    expect(await pageOf(telegram)).toContain("telegram recognises no repeat");
  });

  test("a timeline of thousands shows the latest, and says how many it leaves out", async () => {
    const id = await take(email());
    await sql`
      insert into events (type, delivery_id, producer_id, data)
      select 'receipt.opened', ${id}, producer_id, json_build_object('event_id', 'evt_' || n)
      from deliveries, generate_series(1, 600) as n where id = ${id}`.execute(database.db);
    const page = await pageOf(id);
    expect(page).toContain("101 earlier entries are in the raw JSON");
    expect([page.includes("evt_600"), page.includes("evt_99 ")]).toEqual([true, false]);
    const raw = await ada.get(`/console/deliveries/${id}/raw`);
    expect((await raw.json()) as { timeline: unknown[] }).toMatchObject({
      delivery: { id },
      timeline: expect.any(Array),
    });
  });
});

describe("the overview", () => {
  test("shows each channel's figures as the API has them, and what holds it", async () => {
    await take(chat());
    await app.ask("/v1/channels/telegram/pause", { json: { reason: "the bot misbehaves" } });
    const { data } = (await app.ask("/v1/channels")).body;
    const page = await read("/console/overview");
    const telegram = page.slice(page.indexOf("telegram telegram"));
    const { backlog, in_flight } = data.find(({ id }: { id: string }) => id === "telegram");
    expect(telegram).toContain(`Waiting ${backlog} `);
    expect(telegram).toContain(`In flight ${in_flight} `);
    expect(telegram).toContain("by admin : the bot misbehaves . No attempt is made");
    await app.ask("/v1/channels/telegram/resume", { json: {} });
  });
});

describe("the queue", () => {
  test("says of an item that came back who had decided what, and of the recipient's other deliveries how they stand", async () => {
    await sql`truncate deliveries, events cascade`.execute(database.db);
    const [id] = [await take(chat()), await take(chat())];
    const item = await putInDoubt(database.db, id as never);
    const form = { ids: item, action: "resend", note: "nothing came", acknowledge_duplicate_risk: "true" };
    expect((await ada.post("/console/attention/resolutions", form)).status).toBe(303);
    await putInDoubt(database.db, id as never, { attempt: { number: 2, generation: 2, idempotency_key: "k2" } });
    for (const path of ["/console/attention", `/console/deliveries/${id}`]) {
      const page = await read(path);
      expect(page).toMatch(/It is here again: Ada \(key admin\) decided “ ?Resend, fresh key ?” .*: “ nothing came ”/);
      expect(page).toMatch(/1 other delivery to this recipient \( ?1 pending ?\)/);
    }
  });

  test("says why an action is not possible for what was selected", async () => {
    await sql`truncate deliveries, events cascade`.execute(database.db);
    const item = await putInDoubt(database.db, (await take(chat())) as never);
    const page = await read(`/console/attention/resolve?ids=${item}&action=resend_same_key`);
    expect(page).toContain("no repeat is recognised by the provider as one");
    expect(page).toContain("None of the selected items can be resolved in this way.");
  });

  test("can be filtered by channel, reason, age, assignee and producer; counts are told by reason", async () => {
    await sql`truncate deliveries, events cascade`.execute(database.db);
    const to = fresh("filter").replace("/", "-");
    const old = await take(email({ to: `${to}@example.com` }));
    const item = await putInDoubt(database.db, old as never, { agoMs: 7_200_000, reason: "server_error" });
    const young = await take(chat({ to: "777000777" }));
    await putInDoubt(database.db, young as never);
    await ada.post("/console/attention/assign", { ids: item, to: "me" });
    const shows = async (query: string) => {
      const page = await read(`/console/attention?${query}`);
      return [page.includes(to), page.includes("777000777")];
    };
    for (const query of ["channel=email", "reason=server_error", "older_than=3600", "assignee=me", "assignee=Ada"]) {
      expect(await shows(query), query).toEqual([true, false]);
    }
    expect(await shows("assignee=none")).toEqual([false, true]);
    expect(await shows("producer=admin")).toEqual([true, true]);
    expect(await shows("producer=nobody")).toEqual([false, false]);
    expect(await read("/console/attention")).toMatch(/1 email: server error oldest 2 h .*1 telegram: timeout/);
    expect(await read("/console/attention?producer=nobody")).toContain(
      "No open item fits this filter. 2 items are open in all",
    );
  });
});
