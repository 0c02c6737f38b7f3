import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, chat, email, fresh, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const message = (more: Record<string, unknown>) => ({ message: { subject: "s", text: "t", ...more } });
const soon = (ms: number) => new Date(Date.now() + ms).toISOString();
const DAY = 86_400_000;

const NUL = "\u0000";
const HALF = "\ud83d";

/** What is posted → where the fault is. Every one is a 422 that names the field, and takes nothing in. */
const REFUSED: readonly (readonly [rule: string, request: Record<string, unknown>, pointers: readonly string[]])[] = [
  ["a control character in the name", email({ name: "a\u0007b" }), ["/name"]],
  ["a C1 control character in the name", email({ name: "a\u0085b" }), ["/name"]],
  ["a line break in the name", email({ name: "a\nb" }), ["/name"]],
  ["U+0000 in the name", email({ name: `a${NUL}b` }), ["/name"]],
  ["half a surrogate pair in the name", email({ name: `a${HALF}` }), ["/name"]],
  ["an empty name", email({ name: "" }), ["/name"]],
  ["a name that ends in a blank", email({ name: "a " }), ["/name"]],
  ["a name of 256 characters", email({ name: "x".repeat(256) }), ["/name"]],
  ["a name that is no text", email({ name: 7 }), ["/name"]],
  ["an unknown field", email({ priority: 1 }), ["/priority"]],
  ["an unknown field of the message", email(message({ attachment: [] })), ["/message/attachment"]],
  [
    "an unknown field of an occurrence",
    email({ occurrence: { schedule: "s", due_at: "2026-08-30T06:00:00Z", x: 1 } }),
    ["/occurrence/x"],
  ],
  [
    "a field __proto__",
    JSON.parse('{"name":"p","channel":"sandbox","to":"x","message":{"text":"t"},"__proto__":{}}'),
    ["/__proto__"],
  ],
  [
    "a field __proto__ of the message",
    email({ message: JSON.parse('{"subject":"s","text":"t","__proto__":{"html":"x"}}') }),
    ["/message/__proto__"],
  ],
  ["a field with a slash and a tilde", email({ "a/~b": 1 }), ["/a~1~0b"]],
  ["no channel", email({ channel: undefined }), ["/channel"]],
  ["no recipient", email({ to: undefined }), ["/to"]],
  ["no message", email({ message: undefined }), ["/message"]],
  ["a message that is no object", email({ message: "hello" }), ["/message"]],
  ["an address without a domain", email({ to: "ada" }), ["/to"]],
  ["two addresses in one", email({ to: "ada@example.com, bob@example.com" }), ["/to"]],
  ["a line break in an address", email({ to: "ada@example.com\r\nBcc: bob@example.com" }), ["/to"]],
  ["U+0000 in an address", email({ to: `a${NUL}@example.com` }), ["/to"]],
  ["CR and LF in the subject", email(message({ subject: "Hi\r\nBcc: x@example.com" })), ["/message/subject"]],
  ["a lone LF in the subject", email(message({ subject: "Hi\nthere" })), ["/message/subject"]],
  ["a lone CR in the subject", email(message({ subject: "Hi\rthere" })), ["/message/subject"]],
  [
    "a line break in a header's value",
    email(message({ headers: { "X-Tenant": "a\r\nb" } })),
    ["/message/headers/X-Tenant"],
  ],
  ["a line break in a header's name", email(message({ headers: { "X\r\nBcc": "a" } })), ["/message/headers/X\r\nBcc"]],
  ["a line break in the sender", email(message({ from: "A\n <a@example.com>" })), ["/message/from"]],
  ["a line break in reply_to", email(message({ reply_to: "a@example.com\r\nX: y" })), ["/message/reply_to"]],
  ["a comma in an unquoted display name", email(message({ from: "Doe, Ada <a@example.com>" })), ["/message/from"]],
  [
    "more than fifty recipients",
    email(message({ bcc: Array.from({ length: 50 }, (_, i) => `a${i}@example.com`) })),
    ["/message/cc"],
  ],
  ["an email without text and html", email({ message: { subject: "s" } }), ["/message"]],
  ["an email without a subject", email({ message: { text: "t" } }), ["/message/subject"]],
  [
    "Base64 with a data: prefix",
    email(message({ attachments: [{ filename: "a", content: "data:text/plain;base64,aGk=" }] })),
    ["/message/attachments/0/content"],
  ],
  ["U+0000 in a text", email(message({ text: `a${NUL}b` })), ["/message/text"]],
  ["half a surrogate pair in a text", email(message({ text: `x${HALF}` })), ["/message/text"]],
  ["the other half in a text", email(message({ text: "\udc00y" })), ["/message/text"]],
  ["U+0000 in a tag", email(message({ tags: [{ name: "a", value: NUL }] })), ["/message/tags/0/value"]],
  ["U+0000 in metadata", email({ metadata: { a: [{ b: NUL }] } }), ["/metadata/a/0/b"]],
  ["U+0000 in a key of metadata", email({ metadata: { a: { [`k${NUL}`]: 1 } } }), ["/metadata/a"]],
  ["half a surrogate pair in a key of metadata", email({ metadata: { [HALF]: 1 } }), ["/metadata"]],
  ["metadata that is a list", email({ metadata: [] }), ["/metadata"]],
  ["metadata of more than 16 KiB", email({ metadata: { a: "é".repeat(8_190) } }), ["/metadata"]],
  ["a deliver_at without an offset", email({ deliver_at: "2026-12-30T06:00:00" }), ["/deliver_at"]],
  ["a deliver_at that is a number", email({ deliver_at: 1_788_000_000 }), ["/deliver_at"]],
  ["a day that does not exist", email({ deliver_at: "2026-02-30T06:00:00Z" }), ["/deliver_at"]],
  ["a year that PostgreSQL does not have", email({ deliver_at: "0000-01-01T00:00:00Z" }), ["/deliver_at"]],
  ["a deliver_at beyond 400 days", email({ deliver_at: soon(401 * DAY) }), ["/deliver_at"]],
  [
    "an expires_at at deliver_at",
    email({ deliver_at: soon(DAY).replace("Z", "+00:00"), expires_at: soon(DAY / 2) }),
    ["/expires_at"],
  ],
  ["an expires_at that has passed", email({ expires_at: soon(-1_000) }), ["/expires_at"]],
  [
    "an occurrence without an offset",
    email({ occurrence: { schedule: "s", due_at: "2026-08-30T06:00:00" } }),
    ["/occurrence/due_at"],
  ],
  [
    "a schedule with a control character",
    email({ occurrence: { schedule: "s\u0001", due_at: "2026-08-30T06:00:00Z" } }),
    ["/occurrence/schedule"],
  ],
  ["an on_unknown that is neither", email({ on_unknown: "retry" }), ["/on_unknown"]],
  ["a telegram text of 4,097 UTF-16 units", chat({ message: { text: `${"😀".repeat(2_048)}x` } }), ["/message/text"]],
  ["a chat id beyond 2^53, as text", chat({ to: "9007199254740993" }), ["/to"]],
  ["a chat id beyond 2^53, as a number", chat({ to: 2 ** 53 }), ["/to"]],
  ["a chat id that is no whole number", chat({ to: 1.5 }), ["/to"]],
  ["a chat id in another spelling", chat({ to: "+123" }), ["/to"]],
  ["text and photo together", chat({ message: { text: "t", photo: "https://example.com/a.png" } }), ["/message/photo"]],
  ["topic 0", chat({ message: { text: "t", message_thread_id: 0 } }), ["/message/message_thread_id"]],
  [
    "markup deep inside with U+0000",
    chat({ message: { text: "t", reply_markup: { a: [NUL] } } }),
    ["/message/reply_markup/a/0"],
  ],
];

describe("a delivery is refused, with a pointer to the field, for", () => {
  test.each(REFUSED)("%s", async (_rule, request, expected) => {
    const before = await count();
    const answered = await app.post(request);
    expect(answered.body).toMatchObject({ status: 422, type: "/problems/invalid-request" });
    expect(pointers(answered)).toEqual(expected);
    expect(await count()).toBe(before);
  });

  test("a channel that nobody configured", async () => {
    for (const channel of ["nowhere", "Email", "__proto__", "constructor", `a${NUL}`, HALF, "x".repeat(300), ""]) {
      const answered = await app.post(email({ channel }));
      expect(answered.body).toMatchObject({ status: 422, type: "/problems/unknown-channel" });
      expect(pointers(answered)).toEqual(["/channel"]);
    }
  });

  test("an Idempotency-Key that is no printable ASCII", async () => {
    const answered = await app.post(email({ name: undefined }), { headers: { "idempotency-key": "caf\u00e9" } });
    expect(answered.body).toMatchObject({ status: 400, type: "/problems/invalid-parameter" });
  });

  test("a body that is JSON and no object", async () => {
    for (const body of ["null", "[]", '"x"', "7", "true"]) {
      const answered = await app.ask("/v1/deliveries", { body });
      expect(answered.body).toMatchObject({ status: 422, type: "/problems/invalid-request" });
      expect(answered.body.detail).toContain("must be a JSON object");
    }
  });
});

test("everything that is wrong is said in one answer", async () => {
  const answered = await app.post(
    email({ to: "ada", message: { subject: "a\nb" }, on_unknown: "x", more: 1, expires_at: "tomorrow", metadata: [] }),
  );
  expect(pointers(answered).toSorted()).toEqual(
    ["/expires_at", "/message", "/message/subject", "/metadata", "/more", "/on_unknown", "/to"].toSorted(),
  );
  const nameless = await app.post({ channel: "nowhere", more: 1 });
  expect(nameless.body.type).toBe("/problems/name-required");
  expect(pointers(nameless).toSorted()).toEqual(["/channel", "/message", "/more", "/name", "/to"]);
});

describe("a delivery is taken in, byte for byte, with", () => {
  test.each([
    ["a name of 255 characters outside ASCII", email({ name: `${fresh()} ${"😀".repeat(200)}` })],
    ["the name __proto__", email({ name: "__proto__" })],
    ["the name constructor", email({ name: "constructor" })],
    ["U+2028 in the subject", email(message({ subject: "a\u2028b" }))],
    ["the six characters of an escaped U+0000", email(message({ text: "\\u0000" }))],
    ["an emoji", email(message({ text: "ok 😀" }))],
    ["a quoted display name", email(message({ from: '"Doe, Ada (VP)" <a@example.com>' }))],
    ["an emoji in a display name", email(message({ from: "Jürgen 😀 <a@example.com>" }))],
    ["a telegram text of 4,096 UTF-16 units", chat({ message: { text: "😀".repeat(2_048) } })],
    ["the largest chat id", chat({ to: 2 ** 53 - 1 })],
    ["a channel's name", chat({ to: "@channelusername" })],
    ["metadata of 16 KiB", email({ metadata: { a: "x".repeat(16_384 - 8) } })],
    ["an occurrence long ago", email({ occurrence: { schedule: "s", due_at: "1999-01-01T00:00:00Z" } })],
  ])("%s", async (_rule, request) => {
    const { status, body } = await app.post(request);
    expect(status).toBe(202);
    expect(body).toMatchObject({ name: request.name, to: String(request.to) });
    const { request: stored } = await database.db
      .selectFrom("messages")
      .select("request")
      .where("delivery_id", "=", body.id)
      .executeTakeFirstOrThrow();
    expect(stored).toEqual(JSON.parse(JSON.stringify(request)));
  });
});

async function count(): Promise<string> {
  const { n } = await database.db
    .selectFrom("deliveries")
    .select(({ fn }) => fn.countAll<string>().as("n"))
    .executeTakeFirstOrThrow();
  return n;
}
