import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { harmless } from "../../src/console/harmless.ts";
import { duration, piecesOf, relative } from "../../src/console/text.ts";

const shown = (text: string, max = 1_000) =>
  piecesOf(text, max)
    .pieces.map((piece) => ("text" in piece ? piece.text : `[${piece.hidden}]`))
    .join("");

describe("somebody else's text", () => {
  test.each([
    ["plain", "plain"],
    ["a\u202eb", "a[U+202E]b"],
    ["\u2066x\u2069", "[U+2066]x[U+2069]"],
    ["zero\u200bwidth\ufeff", "zero[U+200B]width[U+FEFF]"],
    ["\u0000\u001b[31m", "[U+0000][U+001B][31m"],
    ["line\nand\ttab", "line\nand\ttab"],
    ["\u2028\u2029", "[U+2028][U+2029]"],
    ["\u{e0041}tag", "[U+E0041]tag"],
    ["\ud800", "[U+D800]"],
    ["👩‍🚀 café مرحبا", "👩‍🚀 café مرحبا"],
  ])("%j is shown as %j", (text, expected) => {
    expect(shown(text)).toBe(expected);
  });

  test("is cut at its limit, and tells what is left", () => {
    expect(piecesOf("x".repeat(50), 20)).toEqual({ pieces: [{ text: "x".repeat(20) }], left: 30 });
    expect(piecesOf("😀😀😀", 2)).toEqual({ pieces: [{ text: "😀😀" }], left: 1 });
  });

  test("never keeps a character that acts or hides", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(shown(text)).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]/);
      }),
    );
  });
});

describe("a message's html, made harmless", () => {
  const reaches = /<(link|meta|base|area|iframe|frame|object|embed|a)[\s/>]/i;
  test.each([
    '<link rel="preconnect" href="//a.example">',
    '<META http-equiv="refresh" content="0; url=//a.example">',
    "<base/href=//a.example>",
    "<template><meta\n http-equiv=refresh></template>",
    "<noscript><link rel=dns-prefetch href=//a.example></noscript>",
    "<form><math><mtext></form><form><mglyph><style></math><link rel=preconnect href=//a.example>",
    '<A href="//a.example" ping="//b.example">x</A><map><area href="//a.example"></map>',
    '<svg><a xlink:href="//a.example"><text>x</text></a></svg>',
    "<iframe src=//a.example></iframe><object data=//a.example></object><embed src=//a.example>",
    "<<link rel=preconnect href=//a.example>",
    "<li<link>nk <link/>",
  ])("%s has no element that reaches out", (html) => {
    expect(harmless(html)).not.toMatch(reaches);
  });

  test("keeps everything else as it is", () => {
    const html = '<style>p{color:red}</style><p style="margin:0">Hello <abbr>here</abbr> <basefont> link meta';
    expect(harmless(html)).toBe(html);
    expect(harmless('<a href="https://a.example">here</a>')).toBe('<u x-a href="https://a.example">here</u x-a>');
  });

  test("never has one, whatever it is made of", () => {
    const piece = fc.constantFrom(
      "<",
      "link",
      "meta",
      "base",
      "area",
      "iframe",
      "a",
      " ",
      "/",
      ">",
      "\n",
      "\f",
      "x",
      "<wbr x-",
      "&lt;",
      "\u0000",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        expect(harmless(pieces.join(""))).not.toMatch(reaches);
      }),
    );
  });
});

test.each([
  [0.4, "0 s"],
  [59, "59 s"],
  [60, "1 min"],
  [7_199, "1 h"],
  [86_400, "1 d"],
  [-5, "0 s"],
])("%d seconds are %s", (seconds, expected) => {
  expect(duration(seconds)).toBe(expected);
});

test("a time is told from now, backwards and forwards", () => {
  const now = Date.parse("2026-12-07T10:00:00Z");
  expect(relative("2026-12-07T09:00:00Z", now)).toBe("1 h ago");
  expect(relative("2026-12-07T10:05:00Z", now)).toBe("in 5 min");
  expect(relative("2026-12-07T10:00:00.5Z", now)).toBe("now");
});
