import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { WebhookEvent, WebhookReader } from "../../src/providers/provider.ts";
import { resend } from "../../src/providers/resend/index.ts";
import { telegram } from "../../src/providers/telegram/index.ts";
import {
  membership,
  type ResendEvent,
  resendWebhook,
  type SignedRequest,
  sign,
  telegramUpdate,
} from "../fakes/webhooks.ts";

const SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM=";
const OTHER = "whsec_YW5vdGhlciBzZWNyZXQgb2YgdGhlIHRlc3Rz";
const ID = "01990000-0000-7000-8000-00000000abcd";
const NOW = Date.now();

const readerOf = (webhooks: WebhookReader | null): WebhookReader => {
  if (!webhooks) throw new Error("no webhooks");
  return webhooks;
};
const ofResend = readerOf(resend.webhooks);
const ofTelegram = readerOf(telegram.webhooks);

const request = ({ headers, body }: SignedRequest) => ({ headers: new Headers(headers), body: Buffer.from(body) });
const verify = (signed: SignedRequest, secrets: readonly string[] = [SECRET]) =>
  ofResend.verify(request(signed), secrets, Date.now());
const read = (event: Omit<ResendEvent, "secrets">) =>
  ofResend.read(request(resendWebhook({ secrets: [SECRET], ...event })), NOW) as Extract<
    WebhookEvent,
    { kind: "receipt" }
  >;
const readBody = (body: string) =>
  ofResend.read(request(sign(body, { id: "msg_1", secrets: [SECRET] })), NOW) as ReturnType<typeof read> | null;

describe("resend: every event type", () => {
  test.each([
    ["email.sent", null, true, null],
    ["email.scheduled", null, true, null],
    ["email.delivered", "delivered", true, null],
    ["email.delivery_delayed", "delayed", true, null],
    ["email.complained", "complained", true, "complaint"],
    ["email.bounced", "bounced", true, "hard_bounce"],
    ["email.opened", "opened", true, null],
    ["email.clicked", "clicked", true, null],
    ["email.failed", "failed", true, null],
    ["email.suppressed", "suppressed", true, "provider_suppressed"],
    ["email.received", null, false, null],
    ["contact.created", null, false, null],
    ["domain.updated", null, false, null],
    ["suppression.added", null, false, null],
    ["email.brand_new", null, false, null],
    ["constructor", null, false, null],
    ["__proto__", null, false, null],
  ])("%s is %s, proves acceptance: %s, suppresses: %s", (type, status, provesAcceptance, suppresses) => {
    expect(read({ type, deliveryId: ID })).toMatchObject({
      kind: "receipt",
      type,
      status,
      provesAcceptance,
      suppresses,
    });
  });

  test("only what is about a sent email names a delivery or a message", () => {
    const about = read({ type: "email.received", deliveryId: ID, emailId: "em_1" });
    expect([about.deliveryId, about.providerMessageId, about.recipients, about.detail]).toEqual([
      null,
      null,
      null,
      null,
    ]);
    expect(JSON.stringify(about)).not.toContain("example.com");
  });

  test.each(["object", "array"] as const)("our tag is found in tags as %s", (tagsAs) => {
    expect(read({ deliveryId: ID.toUpperCase(), tagsAs, emailId: "em_1" })).toMatchObject({
      deliveryId: ID,
      providerMessageId: "em_1",
    });
  });

  test("a tag that is no id of ours, a string for to, nulls and unknown fields spoil nothing", () => {
    const data = {
      tags: { delivery_id: "order-7" },
      cc: null,
      to: "ada@example.com",
      message_id: "<x@y>",
      new_field: {},
    };
    expect(read({ data })).toMatchObject({ deliveryId: null, recipients: ["ada@example.com"], status: "delivered" });
    expect(read({ data: { tags: null, to: null } })).toMatchObject({ deliveryId: null, recipients: null });
    expect(read({ data: { email_id: null, id: "em_2" } })).toMatchObject({ providerMessageId: "em_2" });
  });

  test("a bounce that may pass suppresses nobody", () => {
    for (const type of ["Transient", "Undetermined"]) {
      const bounced = read({
        type: "email.bounced",
        data: { bounce: { type, subType: "MailboxFull", message: "full" } },
      });
      expect(bounced).toMatchObject({ status: "bounced", suppresses: null });
      expect(bounced.detail).toEqual({ bounce: { type, subType: "MailboxFull", message: "full" } });
    }
  });

  test("keeps what an operator wants to know, and no contents, addresses or devices", () => {
    const click = { ipAddress: "203.0.113.7", link: "https://example.com/x", userAgent: "Mozilla", timestamp: "t" };
    const { detail } = read({ type: "email.clicked", data: { click } });
    expect(detail).toEqual({ click: { link: "https://example.com/x" } });
    const failed = read({ type: "email.failed", data: { failed: { reason: `a\u0000b\ud83d${"x".repeat(2_000)}` } } });
    const { reason } = (failed.detail as { failed: { reason: string } }).failed;
    expect([reason.length, reason.isWellFormed(), reason.includes("\0")]).toEqual([500, true, false]);
  });

  test("a detail that is long in JSON loses its end, not all of it", () => {
    const long = "\u0001".repeat(500);
    const { detail } = read({
      type: "email.bounced",
      data: { bounce: { type: "Permanent", message: long }, suppressed: { reason: long } },
    });
    expect(detail).toEqual({ bounce: { type: "Permanent", message: long } });
  });

  test("the time is the event's own, unless it is none, or lies in the future", () => {
    const at = new Date("2026-08-30T06:00:00.123Z");
    expect(read({ at }).occurredAt).toBe(at.getTime());
    expect(readBody('{"type":"email.sent","created_at":"soon","data":{}}')?.occurredAt).toBe(NOW);
    expect(readBody('{"type":"email.sent","created_at":"2999-01-01T00:00:00Z","data":{}}')?.occurredAt).toBe(NOW);
  });

  test.each(["", "null", "[]", '"x"', "7", "{", "\u0000"])("a body that is no object says nothing: %j", (body) => {
    expect(readBody(body)).toBeNull();
  });

  test.each([
    '{"type":"email.delivered"}',
    '{"data":{}}',
    '{"type":7,"data":"x"}',
    '{"type":"email.bounced","data":[]}',
  ])("an event without its parts is kept, and says what it can: %s", (body) =>
    expect(readBody(body)).toMatchObject({ eventId: "msg_1", deliveryId: null, providerMessageId: null }),
  );
});

describe("resend: the signature", () => {
  const good = resendWebhook({ secrets: [SECRET] });
  const withHeader = (name: string, value: string): SignedRequest => ({
    ...good,
    headers: { ...good.headers, [name]: value },
  });
  const signature = good.headers["svix-signature"] ?? "";

  test("of the body is good, under either name of its headers", () => {
    expect(verify(good)).toBe(true);
    const renamed = Object.fromEntries(
      Object.entries(good.headers).map(([name, value]) => [name.replace("svix-", "webhook-"), value]),
    );
    expect(verify({ ...good, headers: renamed })).toBe(true);
  });

  test.each([
    ["an altered body", { ...good, body: good.body.replace("delivered", "bounced") }],
    ["one byte more", { ...good, body: `${good.body} ` }],
    ["another id", withHeader("svix-id", "msg_other")],
    ["another time", withHeader("svix-timestamp", String(Number(good.headers["svix-timestamp"]) - 1))],
    ["another secret", resendWebhook({ secrets: [OTHER] })],
    [
      "one that is older than five minutes",
      resendWebhook({ secrets: [SECRET], signedAt: new Date(Date.now() - 301_000) }),
    ],
    ["one from the future", resendWebhook({ secrets: [SECRET], signedAt: new Date(Date.now() + 302_000) })],
    ["no signature", withHeader("svix-signature", "")],
    ["an unknown version", withHeader("svix-signature", signature.replace("v1,", "v2,"))],
    ["a version without a signature", withHeader("svix-signature", "v1")],
    ["an empty signature", withHeader("svix-signature", "v1,")],
    ["a cut signature", withHeader("svix-signature", signature.slice(0, -2))],
    ["a longer one", withHeader("svix-signature", `${signature}AA`)],
    ["one of many bytes", withHeader("svix-signature", `v1,${"\u00e9".repeat(44)}`)],
    ["a huge one", withHeader("svix-signature", `v1,${"A".repeat(1_000_000)}`)],
    ["a time that is none", withHeader("svix-timestamp", "now")],
    ["a time that is not finite", withHeader("svix-timestamp", "1e999")],
  ])("%s is not", (_, signed) => expect(verify(signed)).toBe(false));

  test("bytes that are no UTF-8 are not what was signed", () => {
    const body = Buffer.concat([Buffer.from(good.body.slice(0, -1)), Buffer.from([0xff, 0x7d])]);
    expect(ofResend.verify({ headers: new Headers(good.headers), body }, [SECRET], Date.now())).toBe(false);
  });

  test("is good by any of several secrets, and any of several signatures", () => {
    expect(verify(good, [OTHER, SECRET])).toBe(true);
    expect(verify(resendWebhook({ secrets: [OTHER, SECRET] }))).toBe(true);
    expect(verify(withHeader("svix-signature", `v1a,xyz v1,AAAA ${signature}`))).toBe(true);
    expect(verify(good, [])).toBe(false);
    // A header that came twice.
    expect(verify(withHeader("svix-signature", `v1,AAAA, ${signature}`))).toBe(true);
  });

  test.each([
    ["", "whsec_"],
    ["whsec_", "Base64"],
    [`v1,${SECRET}`, "whsec_"],
    [`${SECRET}\n`, "Base64"],
    [` ${SECRET}`, "whsec_"],
    ["whsec_c2hvcnQ=", "16"],
    ["whsec_not base64 at all!!", "Base64"],
    [`whsec_${"A".repeat(400)}`, "128"],
  ])("a secret in the wrong form is told from a good one, and not repeated: %j", (secret, part) => {
    const fault = ofResend.secretFault(secret);
    expect(fault).toContain(part);
    if (secret.length > 6) expect(fault).not.toContain(secret.trim());
    expect(ofResend.secretFault(SECRET)).toBeNull();
  });

  test("nothing that can be sent makes it throw", () => {
    const header = fc.string({ maxLength: 60 }).filter((text) => /^[\t\x20-\x7e\x80-\xff]*$/.test(text));
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), header, header, header, (body, id, timestamp, signed) => {
        const headers = new Headers({ "svix-id": id, "svix-timestamp": timestamp, "svix-signature": signed });
        expect(ofResend.verify({ headers, body }, [SECRET, OTHER], NOW)).toBe(false);
        ofResend.read({ headers, body }, NOW);
        ofTelegram.read({ headers, body }, NOW);
      }),
    );
    fc.assert(
      fc.property(fc.json(), (body) => {
        ofResend.read({ headers: new Headers({ "svix-id": "1" }), body: Buffer.from(body) }, NOW);
        ofTelegram.read({ headers: new Headers(), body: Buffer.from(body) }, NOW);
      }),
    );
  });
});

test("whatever the parts of an event hold, it is read, and can be stored", () => {
  const types = fc.constantFrom("email.bounced", "email.sent", "email.clicked", "email.received", "\ud83d".repeat(120));
  const odd = fc.oneof(
    fc.jsonValue(),
    fc.constant({ toString: 1, valueOf: 1 }),
    fc.string({ unit: "binary", maxLength: 3_000 }),
    fc.array(fc.record({ name: fc.constant("delivery_id"), value: fc.jsonValue() })),
  );
  const parts = fc.record(
    { type: odd, reason: odd, message: odd, link: odd, diagnosticCode: odd },
    { requiredKeys: [] },
  );
  const data = fc.record(
    {
      ...{ tags: odd, to: odd, email_id: odd, id: odd },
      ...{ bounce: fc.oneof(parts, odd), failed: parts, suppressed: parts, click: parts },
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(types, data, odd, (type, some, at) => {
      const body = Buffer.from(JSON.stringify({ type, created_at: at, data: some }));
      const event = ofResend.read({ headers: new Headers({ "svix-id": "msg_1" }), body }, NOW);
      const stored = JSON.stringify(event);
      expect(event).toMatchObject({ kind: "receipt", eventId: "msg_1" });
      expect(stored.isWellFormed() && !stored.includes("\\u0000") && !/\\ud[89a-f]/.test(stored)).toBe(true);
      if (event?.kind === "receipt") expect(Buffer.byteLength(JSON.stringify(event.detail))).toBeLessThanOrEqual(4_096);
    }),
  );
});

describe("telegram", () => {
  const readUpdate = (update: Record<string, unknown>) => ofTelegram.read(request(telegramUpdate(update, "s", 7)), NOW);

  test("the secret token is compared with each secret", () => {
    const signed = request(telegramUpdate({}, "the-secret"));
    expect(ofTelegram.verify(signed, ["other", "the-secret"], NOW)).toBe(true);
    for (const secrets of [[], ["other"], ["the-secret "], ["THE-SECRET"]]) {
      expect(ofTelegram.verify(signed, secrets, NOW)).toBe(false);
    }
    expect(ofTelegram.isSigned(new Headers())).toBe(false);
  });

  test.each(["", "a b", "ü", "x".repeat(257), "a\n"])(
    "a secret that setWebhook would not take is refused: %j",
    (secret) => {
      expect(ofTelegram.secretFault(secret)).toContain("setWebhook");
    },
  );

  test.each([
    ["kicked", "blocked"],
    ["left", "blocked"],
    ["member", "unblocked"],
    ["administrator", "unblocked"],
  ])("a membership that becomes %s says that the chat is %s", (status, to) => {
    const at = new Date("2026-08-30T06:00:00Z");
    expect(readUpdate(membership(42, status, at))).toEqual({
      ...{ kind: "recipient", eventId: "update:7", type: "my_chat_member", recipient: "42" },
      ...{ occurredAt: at.getTime(), change: { to } },
    });
  });

  test.each([
    [false, "blocked"],
    [true, "unblocked"],
    [undefined, "unblocked"],
  ])("a restricted membership counts as long as it is one: %s", (is_member, to) => {
    const update = membership(-42, "restricted");
    Object.assign(update.my_chat_member.new_chat_member, { is_member });
    expect(readUpdate(update)).toMatchObject({ recipient: "-42", change: { to } });
  });

  test("the last message of an upgraded group says where it moved", () => {
    const message = { chat: { id: -5, type: "group" }, date: 1_700_000_000, migrate_to_chat_id: -1_009 };
    expect(readUpdate({ message })).toMatchObject({ recipient: "-5", change: { to: "moved", movedTo: "-1009" } });
  });

  test.each([
    { message: { chat: { id: 1 }, text: "a private word" } },
    { edited_message: {} },
    { my_chat_member: null },
    { my_chat_member: { chat: { id: "x" }, new_chat_member: { status: "kicked" } } },
    {},
  ])("of anything else nothing is kept: %j", (update) => expect(readUpdate(update)).toBeNull());
});
