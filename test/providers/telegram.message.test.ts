import { describe, expect, test } from "vitest";
import { telegram } from "../../src/providers/telegram/index.ts";
import { faults } from "./build.ts";

const fault = (message: unknown) => faults(telegram.message, message);

describe("a chat", () => {
  test.each([
    [42, "42"],
    [-1_001_234_567_890, "-1001234567890"],
    ["42", "42"],
    ["-1001234567890", "-1001234567890"],
    [Number.MAX_SAFE_INTEGER, "9007199254740991"],
    ["-9007199254740991", "-9007199254740991"],
    ["@durov", "@durov"],
    [`@${"a".repeat(32)}`, `@${"a".repeat(32)}`],
  ])("%j is %s", (to, chat) => {
    expect(telegram.recipient.parse(to)).toBe(chat);
  });

  test.each([
    0,
    "0",
    "-0",
    1.5,
    2 ** 53,
    -(2 ** 53),
    "9007199254740992",
    "99999999999999999999",
    "007",
    "+5",
    " 5",
    "5\n",
    "1e3",
    "0x10",
    "@abc",
    `@${"a".repeat(33)}`,
    "@1abcd",
    "@a-bcde",
    "durov",
    "https://t.me/durov",
    "",
    "@",
    null,
    true,
    [],
    {},
    Number.NaN,
  ])("%j is refused", (to) => {
    const text = faults(telegram.recipient, to);
    expect(text).toMatch(/^: must/);
    expect(text).not.toContain("Invalid input");
  });
});

describe("a message", () => {
  test.each([
    ["a text", { text: "hi" }],
    ["a text of 4,096 UTF-16 units", { text: "😀".repeat(2_048) }],
    ["a text that is no valid markup", { text: "v1.2-rc (ada_x)", parse_mode: "MarkdownV2" }],
    ["a photo without a caption", { photo: "https://x.test/a.png" }],
    [
      "a photo by its id",
      { photo: "AgACAgIAAxkBAAI", caption: "c", has_spoiler: true, show_caption_above_media: true },
    ],
    ["a document", { document: "BQACAgIAAx", caption: "c".repeat(1_024), disable_content_type_detection: true }],
    ["topic 1", { text: "t", message_thread_id: 1 }],
    [
      "every option of a text",
      {
        text: "t",
        entities: [{ type: "bold", offset: 0, length: 1 }],
        link_preview_options: { is_disabled: true },
        reply_parameters: { message_id: 5 },
        reply_markup: { inline_keyboard: [[{ text: "b", url: "https://x.test" }]] },
        disable_notification: true,
        protect_content: false,
        allow_paid_broadcast: true,
        message_effect_id: "5104841245755180586",
        business_connection_id: "b1",
      },
    ],
  ])("%s is taken", (_name, message) => {
    expect(fault(message)).toBe("");
  });

  test.each([
    ["nothing", {}, ": must have exactly one of text, photo and document"],
    ["text and photo", { text: "t", photo: "p" }, "photo: must have exactly one of"],
    ["an empty text", { text: "" }, "text: must not be empty"],
    ["4,097 UTF-16 units", { text: `${"😀".repeat(2_048)}a` }, "text: must have at most 4096 characters"],
    ["a caption of 1,025", { photo: "p", caption: "c".repeat(1_025) }, "caption: must have at most 1024"],
    ["a caption of a text", { text: "t", caption: "c" }, "caption: goes with photo or document only"],
    ["a spoiler of a document", { document: "d", has_spoiler: true }, "has_spoiler: goes with photo only"],
    ["entities of a photo", { photo: "p", entities: [] }, "entities: goes with text only"],
    ["an unknown field", { text: "t", chat_id: 5 }, "chat_id: "],
    ["a number for a text", { text: 5 }, "text: must be text"],
    ["another parse mode", { text: "t", parse_mode: "markdown" }, "parse_mode: must be"],
    ["topic 0", { text: "t", message_thread_id: 0 }, "message_thread_id: must be positive"],
    ["a topic and a half", { text: "t", message_thread_id: 1.5 }, "message_thread_id: must be"],
    ["a flag as text", { text: "t", protect_content: "yes" }, "protect_content: must be true or false"],
    ["markup as text", { text: "t", reply_markup: "{}" }, "reply_markup: must be an object"],
    ["entities as an object", { text: "t", entities: {} }, "entities: must be a list"],
    ["an upload", { photo: { source: "x" } }, "photo: must be an https URL or a file_id"],
    ["spaces in a file", { photo: "a b" }, "photo: must be"],
    ["too large a keyboard", { text: "t", reply_markup: { a: "x".repeat(50_000) } }, "reply_markup: must have at most"],
  ])("with %s is refused at the field", (_name, message, expected) => {
    expect(fault(message)).toContain(expected);
    expect(fault(message)).not.toContain("Invalid input");
  });

  test.each([null, [], "text", 5])("that is %j is refused", (value) => {
    expect(fault(value)).toBe(": must be an object");
  });

  test.each(["a\0b", "x\ud83d", "\udc00y"])("with %j anywhere inside is refused, with its path", (text) => {
    expect(fault({ text })).toMatch(/^text: must not contain/);
    expect(fault({ photo: "p", caption: text })).toMatch(/^caption: must not contain/);
    expect(fault({ text: "t", message_effect_id: text })).toMatch(/^message_effect_id: must not contain/);
    expect(fault({ text: "t", reply_markup: { inline_keyboard: [[{ text }]] } })).toMatch(
      /^reply_markup\/inline_keyboard\/0\/0\/text: must not contain/,
    );
    expect(fault({ text: "t", reply_markup: { deep: { [text]: 1 } } })).toMatch(
      /^reply_markup\/deep: must not have a key/,
    );
    expect(fault({ text: "t", entities: [{ type: "text_link", url: text }] })).toMatch(/^entities\/0\/url: /);
  });

  test("with an own key named __proto__ is refused", () => {
    expect(fault(JSON.parse('{"text":"t","__proto__":{"x":1}}'))).not.toBe("");
  });

  test("that only looks like an escape is taken", () => {
    expect(fault({ text: "\\u0000 \\ud83d" })).toBe("");
  });
});

test("the preview is the text, the caption or the file", () => {
  expect(telegram.preview({ text: "a\nb" })).toBe("a b");
  expect(telegram.preview({ photo: "p", caption: "c" })).toBe("c");
  expect(telegram.preview({ document: "d" })).toBe("d");
});
