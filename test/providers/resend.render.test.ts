import { describe, expect, test } from "vitest";
import { openAdapter, PROVIDERS } from "../../src/providers/index.ts";
import { DELIVERY } from "./build.ts";

const API_KEY = "re_test_accepted_key_0001";
const to = "ada@example.com";
const message = { subject: "Hello", text: "Hi" };

describe("the rendered email", () => {
  const rendered = async (posted: object, settings = {}) => {
    const other = openAdapter({ provider: "resend", apiKey: API_KEY, ...settings });
    return JSON.parse(await other.render({ deliveryId: DELIVERY, to, message: posted })) as Record<string, unknown>;
  };

  test("has the API's own names, and the delivery's tag", async () => {
    const posted = {
      from: "Ada <a@example.com>",
      subject: "S",
      html: "<p>é</p>",
      text: "T",
      cc: ["c@example.com"],
      bcc: "b@example.com",
      reply_to: ["r@example.com"],
      headers: { "X-Entity": "1" },
      tags: [{ name: "kind", value: "digest" }],
      attachments: [{ filename: "a.txt", content: "aGk=", content_type: "text/plain", content_id: "cid" }],
    };
    expect(PROVIDERS["resend"]?.message.safeParse(posted).success).toBe(true);
    expect(await rendered(posted)).toEqual({
      ...posted,
      to,
      tags: [...posted.tags, { name: "delivery_id", value: DELIVERY }],
    });
  });

  test("has the account's sender when the message names none", async () => {
    expect(await rendered(message, { from: "L <l@example.com>" })).toMatchObject({ from: "L <l@example.com>" });
    expect(await rendered({ ...message, from: "a@example.com" }, { from: "l@example.com" })).toMatchObject({
      from: "a@example.com",
    });
  });

  test("an account without a default sender says what such a message lacks", () => {
    const other = openAdapter({ provider: "resend", apiKey: API_KEY });
    expect(other.lacks(message)).toMatchObject({ path: ["from"] });
    expect(other.lacks({ ...message, from: "a@example.com" })).toBeNull();
    const withDefault = openAdapter({ provider: "resend", apiKey: API_KEY, from: "l@example.com" });
    expect(withDefault.lacks(message)).toBeNull();
  });

  test("a default sender that would be read as two addresses is refused at start", () => {
    expect(() => openAdapter({ provider: "resend", apiKey: API_KEY, from: "Doe, Ada <a@example.com>" })).toThrow(
      /default sender .*quotes/,
    );
  });

  test("attachments' bytes are what was posted", async () => {
    const content = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString("base64");
    const email = await rendered({ ...message, from: "a@b.c", attachments: [{ filename: "x.bin", content }] });
    expect(email).toMatchObject({ attachments: [{ filename: "x.bin", content }] });
  });
});
