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
  test.each([
    ['<link rel="preconnect" href="//a.example">', "link"],
    ['<meta http-equiv="refresh" content="0; url=//a.example">', "meta"],
    ['<svg><foreignObject><iframe src="//a.example"></iframe></foreignObject></svg>', "iframe"],
    ['<template><meta http-equiv="refresh" content="0"></template>', "<meta"],
    ["<math><mtext><table><mglyph><style><!--</style><script>1</script>", "<script"],
    ["<noscript><link rel=dns-prefetch href=//a.example></noscript>", "<link"],
    ['<a href="//a.example" ping="//b.example" target="_top">x</a>', "href"],
    ['<form action="//a.example"><button formaction="//b.example">x</button></form>', "action"],
    ['<svg><a xlink:href="//a.example"><text>x</text></a></svg>', "href"],
  ])("%s keeps no %s", (html, gone) => {
    expect(harmless(html).replaceAll(/ title="[^"]*"/g, "")).not.toContain(gone);
  });

  test("keeps what the recipient sees, and tells where a link leads", () => {
    const html = harmless(
      '<style>p{color:red}</style><p style="margin:0">Hello <a href="https://a.example/?q=1">here</a></p>',
    );
    expect(html).toContain('<p style="margin:0">Hello <a title="leads to https://a.example/?q=1">here</a></p>');
    expect(html).toContain("<style>p{color:red}</style>");
  });

  test("is the same when it is made harmless again", () => {
    fc.assert(
      fc.property(fc.string(), (html) => {
        const once = harmless(`<div>${html}</div>`);
        expect(harmless(once)).toBe(once);
      }),
    );
  });

  test("may be nested ten thousand deep", () => {
    expect(harmless("<div>".repeat(10_000)).length).toBeGreaterThan(0);
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
