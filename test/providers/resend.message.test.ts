import { describe, expect, test } from "vitest";
import { PROVIDERS } from "../../src/providers/index.ts";
import { resend } from "../../src/providers/resend/index.ts";
import { faults } from "./build.ts";

const OK = { from: "Ada <ada@example.com>", subject: "Hello", text: "Hi" };

const fault = (more: object) => faults(resend.message, { ...OK, ...more });
const recipientFault = (to: unknown) => faults(resend.recipient, to);

describe("an email", () => {
  test.each([
    ["with everything", { html: "<p>", cc: ["c@x.test"], bcc: "b@x.test", reply_to: ["R <r@x.test>"] }],
    ["with tags and headers", { tags: [{ name: "a-b_1", value: "C" }], headers: { "X-Entity-Ref": "é 😀" } }],
    ["without a sender", { from: undefined }],
    ["with a line separator in its subject", { subject: "a\u2028b" }],
    ["with emoji", { subject: "ok 😀", text: "ok 😀 \\u0000" }],
    ["with a base64 attachment", { attachments: [{ filename: "a.txt", content: "aGk=" }] }],
    ["with a linked attachment", { attachments: [{ filename: "a.pdf", path: "https://x.test/a.pdf" }] }],
  ])("%s is taken", (_name, more) => {
    expect(fault(more)).toBe("");
  });

  test.each([
    ["without a subject", { subject: undefined }, "subject: is required"],
    ["with an empty subject", { subject: "" }, "subject: "],
    ["with an unknown field", { scheduled_at: "tomorrow" }, "scheduled_at: "],
    ["with a react field", { react: {} }, "react: "],
    ["with U+0000 in its text", { text: "a\u0000b" }, "text: must not contain U+0000"],
    ["with half a character in its html", { html: "x\ud83d" }, "html: must not contain a lone surrogate"],
    ["with half a character in its subject", { subject: "\udc00y" }, "subject: must not contain a lone surrogate"],
  ])("%s is refused at the field", (_name, more, expected) => {
    expect(fault(more)).toContain(expected);
  });

  test("without html and text is refused", () => {
    expect(faults(resend.message, { subject: "s" })).toContain("html or text");
  });

  test.each([null, [], "text", 5])("that is %j is refused", (value) => {
    expect(resend.message.safeParse(value).success).toBe(false);
  });

  test.each(["a\r\nBcc: x@ex.test", "a\nb", "a\rb", "a\0b"])("with %j in a header is refused", (text) => {
    expect(fault({ subject: text })).toMatch(/^subject: must not contain/);
    expect(fault({ from: `${text} <a@b.test>` })).toMatch(/^from: /);
    expect(fault({ reply_to: `${text} <a@b.test>` })).toMatch(/^reply_to: /);
    expect(fault({ headers: { "X-A": text } })).toMatch(/^headers\/X-A: must not contain/);
    expect(fault({ headers: { [`X-${text}`]: "v" } })).toContain("must be a header name");
    expect(fault({ attachments: [{ filename: text, content: "aGk=" }] })).toMatch(/^attachments\/0\/filename: /);
  });

  test.each(["X A", "X:A", "", "é", "X(A)"])("with the header name %j is refused", (name) => {
    expect(fault({ headers: { [name]: "v" } })).toContain("must be a header name");
  });
});

describe("a display name", () => {
  test.each([
    "ada@example.com",
    "Ada <ada@example.com>",
    "Jürgen 😀 <j@example.com>",
    '"Doe, Ada (VP) \\"x\\"" <ada@example.com>',
    "O'Neil & Sons <o@example.com>",
    "Ada M. Doe <ada@exämple.com>",
    "ada+tag@sub.example.com",
  ])("%s is taken", (from) => {
    expect(fault({ from })).toBe("");
  });

  test.each([
    'Doe, Ada (VP) "x" <ada@example.com>',
    "Doe, Ada <ada@example.com>",
    "Ada (VP) <ada@example.com>",
    "Ada [x] <ada@example.com>",
    "x@y.test <ada@example.com>",
    "a@x.test, b@y.test",
    "a@x.test <b@y.test>, c@z.test",
    '"Doe <ada@example.com>',
    "<>",
    "Ada",
    "ada@",
    "@example.com",
    "a b@example.com",
    ".a@example.com",
    "a.@example.com",
    "a..b@example.com",
    "ada@-example.com",
    "ada@example..com",
    "ada@example.com>",
    "",
  ])("%s is refused, naming the field, and never split in two", (from) => {
    expect(fault({ from })).toMatch(/^from: must/);
    expect(fault({ cc: ["ok@example.com", from] })).toMatch(/^cc\/1: must/);
  });

  test("with a comma is told how to be written", () => {
    expect(fault({ from: "Doe, Ada <a@example.com>" })).toContain('"Doe, Ada" <ada@example.com>');
  });
});

describe("recipients", () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => `r${index}@x.test`);

  test("an email has at most fifty, with to and bcc", () => {
    expect(fault({ cc: many(20), bcc: many(29) })).toBe("");
    expect(fault({ cc: many(20), bcc: many(30) })).toContain("at most 50 recipients");
    expect(fault({ cc: many(51) })).toContain("cc: must have 1 to 50 addresses");
  });

  test("to is one bare address", () => {
    expect(recipientFault("ada@example.com")).toBe("");
    for (const to of [
      "",
      "Ada <ada@example.com>",
      "a@x.test,b@x.test",
      "a@x.test\n",
      "a\0@x.test",
      "\ud83d@x.test",
      5,
      null,
    ]) {
      expect(recipientFault(to), JSON.stringify(to)).not.toBe("");
    }
  });
});

describe("tags", () => {
  const tag = (name: string, value: string) => fault({ tags: [{ name, value }] });

  test.each(["a b", "a:b", "a.b", "é", "", "x".repeat(257)])(
    "of other characters, or too long, are refused: %j",
    (text) => {
      expect(tag(text, "v")).toMatch(/^tags\/0\/name: must be/);
      expect(tag("n", text)).toMatch(/^tags\/0\/value: must be/);
    },
  );

  test("delivery_id is the ledger's own", () => {
    expect(tag("delivery_id", "v")).toContain("tags/0/name: delivery_id is the ledger's own tag");
  });

  test("named like a member of every object are tags", () => {
    expect(tag("toString", "constructor")).toBe("");
    expect(fault({ headers: { constructor: "v", toString: "w" } })).toBe("");
  });
});

describe("an attachment", () => {
  const content = (text: string) => fault({ attachments: [{ filename: "a", content: text }] });

  test.each(["aGk=", "aA==", "aGkh", Buffer.alloc(3_000, 255).toString("base64")])("%s is Base64", (text) => {
    expect(content(text)).toBe("");
  });

  test.each([
    ["nothing", ""],
    ["line breaks", "aGkh\naGkh"],
    ["a data: prefix", "data:text/plain;base64,aGk="],
    ["the alphabet for URLs", "-_-_"],
    ["missing padding", "aGk"],
    ["too much padding", "aGk=="],
    ["padding inside", "aG==aGkh"],
    ["left-over bits", "aGl="],
    ["spaces", "aG k="],
  ])("with %s is refused", (_name, text) => {
    expect(content(text)).toMatch(/^attachments\/0\/content: must/);
  });

  test.each([
    ["bytes as an object", { content: { type: "Buffer", data: [1] } }],
    ["neither content nor path", {}],
    ["both", { content: "aGk=", path: "https://x.test/a" }],
    ["an http path", { path: "http://x.test/a" }],
    ["a file path", { path: "/etc/passwd" }],
    ["U+0000 in its path", { path: "https://x.test/\0" }],
    ["a line break in its path", { path: "https://x.test/a\nb" }],
    ["an unknown field", { content: "aGk=", disposition: "inline" }],
  ])("with %s is refused", (_name, more) => {
    expect(fault({ attachments: [{ filename: "a", ...more }] })).toMatch(/^attachments\/0/);
  });

  test("all together have at most 40 MB after Base64, and large ones are checked", () => {
    const half = "A".repeat(20 * 1024 * 1024);
    const both = { attachments: [half, half].map((text) => ({ filename: "a", content: text })) };
    expect(fault(both)).toBe("");
    expect(fault({ attachments: [...both.attachments, { filename: "b", content: "aGk=" }] })).toContain("40 MB");
  });
});

test("what is not text has no lone surrogate and no U+0000 either", () => {
  for (const odd of ["a\0", "\ud83d"]) {
    expect(fault({ cc: [`${odd} <a@b.test>`] })).toMatch(/^cc\/0: /);
    expect(fault({ attachments: [{ filename: "a", content: "aGk=", content_type: odd }] })).toMatch(/^attachments/);
    expect(fault({ attachments: [{ filename: "a", content: "aGk=", content_id: odd }] })).toMatch(/^attachments/);
  }
});

test("the preview is the subject, on one line, at most 200 characters, without half a character", () => {
  expect(resend.preview(OK)).toBe("Hello");
  const long = resend.preview({ ...OK, subject: `${"x".repeat(199)}😀` });
  expect(long).toBe("x".repeat(199));
  for (const provider of Object.values(PROVIDERS)) expect(provider.preview({})).toBe("");
});
