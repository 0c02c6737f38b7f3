import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { sql } from "kysely";
import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { bodyOf, type Callbacks, startCallbacks } from "../../src/callbacks/callbacks.ts";
import type { ProducerId } from "../../src/ledger/delivery.ts";
import { claimMessages, fanOut, settleMessage } from "../../src/store/callback-messages.ts";
import {
  enableCallback,
  findCallback,
  placeBefore,
  putCallback,
  replayFrom,
  rotateSecret,
} from "../../src/store/callbacks.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import { take } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import { silent, until } from "../support/pipeline.ts";

const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const NEXT = `whsec_${Buffer.alloc(32, 8).toString("base64")}`;

interface Post {
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: string;
}

let database: TestDatabase;
let shop: ProducerId;
let server: Server;
let base: string;
let posts: Post[];
let answer: (post: Post, response: ServerResponse) => void;
let callbacks: Callbacks | null = null;

beforeAll(async () => {
  database = await testDatabase(20);
  server = createServer((request: IncomingMessage, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const post = { path: request.url ?? "", headers: request.headers as Record<string, string>, body };
      posts.push(post);
      answer(post, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await database.close();
});
beforeEach(async () => {
  await empty(database.db, "deliveries", "events", "callbacks");
  shop = await ensureProducer(database.db, "shop");
  posts = [];
  answer = (_post, response) => response.writeHead(200).end();
});
afterEach(async () => {
  await callbacks?.stop();
  callbacks = null;
});

const register = (more: Partial<Parameters<typeof putCallback>[1]> = {}) =>
  putCallback(database.db, {
    producerId: shop,
    url: `${base}/a`,
    types: null,
    secret: SECRET,
    fallback: SECRET,
    ...more,
  });
const start = (timeoutMs = 2_000) => {
  const deps = { db: database.db, log: silent, allowPrivate: true, pollIntervalMs: 20, concurrency: 8, timeoutMs };
  callbacks = startCallbacks(deps);
};
/** Something happens to a delivery. */
async function happen(type: string, producerId = shop): Promise<void> {
  const [id] = await take(database.db, {});
  await sql`insert into events (type, delivery_id, producer_id, data)
    values (${type}, ${id}, ${producerId}, '{"attempt": 1}'::json)`.execute(database.db);
}
const messages = async () =>
  (
    await sql<{
      type: string;
      attempts: number;
      waits: boolean;
      delivered: boolean;
      last_error: string | null;
      given_up: boolean;
    }>`
      select type, attempts, next_attempt_at is not null as waits, delivered_at is not null as delivered, last_error,
        given_up_at is not null as given_up
      from callback_messages order by tx, event_id`.execute(database.db)
  ).rows;
const postsTo = (path: string) => posts.filter((post) => post.path === path);
/** Until so many messages are made. Other databases of the server hold the feed's horizon back while they write. */
const fanned = (count: number) =>
  until(
    async () => {
      await fanOut(database.db, 7, bodyOf);
      return await messages();
    },
    (all) => all.length === count,
  );
const makeDue = () =>
  sql`update callback_messages set next_attempt_at = now() where next_attempt_at is not null`.execute(database.db);

describe("a producer is told", () => {
  test("what became of its deliveries: signed, with the delivery as it stands, and without its contents", async () => {
    await register();
    start();
    await happen("delivery.sent");
    const [post] = await until(
      () => posts,
      (all) => all.length > 0,
    );
    expect(new Webhook(SECRET).verify(post?.body ?? "", post?.headers ?? {})).toMatchObject({
      type: "delivery.sent",
      data: { delivery: { channel: "sandbox", state: "pending" }, event: { attempt: 1 } },
    });
    expect(post?.headers["webhook-id"]).toMatch(/^evt_\d+_\d+$/);
    expect(post?.body).not.toContain("accept@sandbox");
    await until(messages, ([one]) => one?.delivered === true);
  });

  test("of what it wants, and of nothing that happened before, and of nobody else's", async () => {
    await happen("delivery.sent");
    await register({ types: ["receipt.*", "delivery.failed"] });
    start();
    const other = await ensureProducer(database.db, "other");
    for (const type of ["delivery.sent", "delivery.failed", "receipt.bounced", "delivery.claimed"]) await happen(type);
    await happen("delivery.failed", other);
    await until(
      () => posts,
      (all) => all.length === 2,
    );
    await happen("receipt.opened");
    await until(
      () => posts,
      (all) => all.length === 3,
    );
    expect((await messages()).map(({ type }) => type)).toEqual([
      "delivery.failed",
      "receipt.bounced",
      "receipt.opened",
    ]);
  });

  test("again on the ladder, under the same id, until it takes the message", async () => {
    let refusals = 2;
    answer = (_post, response) => response.writeHead(refusals-- > 0 ? 503 : 204).end();
    await register();
    start();
    await happen("delivery.sent");
    for (let failures = 1; failures <= 2; failures += 1) {
      await until(messages, ([one]) => one?.last_error === "answered 503" && one.attempts >= failures);
      await makeDue();
    }
    await until(messages, ([one]) => one?.delivered === true);
    expect(new Set(posts.map(({ headers }) => headers["webhook-id"])).size).toBe(1);
    expect(await findCallback(database.db, shop)).toMatchObject({ failing_since: null, last_failure: "answered 503" });
  });

  test("and a receiver that hangs holds up nobody else", async () => {
    answer = (post, response) => void (post.path === "/a" ? null : response.writeHead(200).end());
    const other = await ensureProducer(database.db, "other");
    await register();
    await register({ producerId: other, url: `${base}/b` });
    start(1_000);
    for (let n = 0; n < 20; n += 1) await happen("delivery.sent");
    await happen("delivery.sent", other);
    await until(
      () => postsTo("/b"),
      (all) => all.length === 1,
    );
    expect(postsTo("/a").length).toBeLessThanOrEqual(8);
  });

  test("a redirect is not followed, and an endless answer is not read", async () => {
    answer = (post, response) => {
      if (post.path === "/a") response.writeHead(302, { location: `${base}/elsewhere` }).end();
      else {
        response.writeHead(200);
        const more = () => {
          while (response.write("x".repeat(65_536)));
        };
        response.on("drain", more);
        response.on("error", () => {});
        more();
      }
    };
    const other = await ensureProducer(database.db, "other");
    await register();
    await register({ producerId: other, url: `${base}/b` });
    start();
    await happen("delivery.sent");
    await happen("delivery.sent", other);
    await until(
      messages,
      (all) => all.length === 2 && all.every(({ delivered, last_error }) => delivered || last_error !== null),
    );
    expect((await messages()).map(({ delivered, last_error }) => delivered || last_error)).toEqual([
      "answered 302",
      true,
    ]);
    expect(postsTo("/elsewhere")).toEqual([]);
  });

  test("410 disables the callback, visibly; enabled again it goes on where it stopped", async () => {
    answer = (_post, response) => response.writeHead(410).end();
    await register();
    start();
    await happen("delivery.sent");
    await until(
      () => findCallback(database.db, shop),
      (row) => row?.disabled_reason === "gone",
    );
    answer = (_post, response) => response.writeHead(200).end();
    await happen("delivery.failed");
    expect(posts).toHaveLength(1);
    await enableCallback(database.db, shop);
    await until(messages, (all) => all.length === 2 && all.every(({ delivered }) => delivered));
  });

  test("days of failure disable it, with the reason", async () => {
    answer = (_post, response) => response.writeHead(500).end();
    await register();
    await sql`update callbacks set failing_since = now() - interval '6 days'`.execute(database.db);
    start();
    await happen("delivery.sent");
    const row = await until(
      () => findCallback(database.db, shop),
      (one) => one?.disabled_at !== null,
    );
    expect(row?.disabled_reason).toContain("5 days");
  });

  test("while a secret is rotated both sign", async () => {
    await register();
    await rotateSecret(database.db, shop, NEXT);
    start();
    await happen("delivery.sent");
    const [post] = await until(
      () => posts,
      (all) => all.length > 0,
    );
    for (const secret of [SECRET, NEXT]) new Webhook(secret).verify(post?.body ?? "", post?.headers ?? {});
  });

  test("from a place in the feed again: the same messages under the same ids", async () => {
    await register();
    start();
    await happen("delivery.sent");
    await until(messages, ([one]) => one?.delivered === true);
    const place = await placeBefore(database.db, shop, new Date(Date.now() - 60_000));
    expect(place).not.toBeNull();
    if (place) await replayFrom(database.db, shop, place);
    await until(
      () => posts,
      (all) => all.length === 2,
    );
    expect(posts[0]?.headers["webhook-id"]).toBe(posts[1]?.headers["webhook-id"]);
    expect(posts[0]?.body).toBe(posts[1]?.body);
  });
});

describe("the store", () => {
  const request = { limit: 50, perCallback: 50, leaseS: 30, busy: [] };

  test("makes each message once, however many processes do it at once", async () => {
    await register();
    for (let n = 0; n < 30; n += 1) await happen("delivery.sent");
    await Promise.all(Array.from({ length: 8 }, () => fanned(30)));
    expect(await messages()).toHaveLength(30);
  });

  test("never skips an event whose transaction commits late", async () => {
    await register();
    const late = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const slow = database.db.transaction().execute(async (tx) => {
      await sql`insert into events (type, producer_id, data) values ('receipt.opened', ${shop}, '{}')`.execute(tx);
      begun.resolve();
      await late.promise;
    });
    await begun.promise;
    await happen("delivery.sent");
    await fanOut(database.db, 100, bodyOf);
    late.resolve();
    await slow;
    expect((await fanned(2)).map(({ type }) => type).toSorted()).toEqual(["delivery.sent", "receipt.opened"]);
  });

  test("hands each message to one of many claimers, and again when the lease has run out", async () => {
    await register();
    for (let n = 0; n < 20; n += 1) await happen("delivery.sent");
    await fanned(20);
    const claims = (await Promise.all(Array.from({ length: 6 }, () => claimMessages(database.db, request)))).flat();
    expect(new Set(claims.map(({ eventId }) => eventId)).size).toBe(20);
    expect(claims).toHaveLength(20);
    await makeDue();
    const again = await claimMessages(database.db, request);
    expect(again.map(({ attempt }) => attempt)).toEqual(again.map(() => 2));
    const [first] = claims;
    if (first) expect(await settleMessage(database.db, first, { kind: "delivered", status: 200 })).toBe(false);
  });

  test("gives a message up at the end of the ladder, and keeps that it did", async () => {
    await register();
    await happen("delivery.sent");
    await fanned(1);
    const [claim] = await claimMessages(database.db, request);
    if (!claim) throw new Error("no claim");
    const failed = { kind: "failed", status: 500, error: "answered 500", waitS: null, disables: null } as const;
    await settleMessage(database.db, claim, failed);
    expect(await messages()).toMatchObject([{ waits: false, given_up: true, last_error: "answered 500" }]);
  });
});
