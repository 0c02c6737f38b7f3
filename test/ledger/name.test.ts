import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { differingPointers, nameFault, occurrenceName, requestHash } from "../../src/ledger/name.ts";

describe("names", () => {
  test.each([
    "a",
    "nightly-digest/2026-08-30T06:00Z/user-42",
    "rapport-été-😀",
    "__proto__",
    "x".repeat(255),
    "😀".repeat(255),
  ])("%s is a name", (name) => {
    expect(nameFault(name)).toBeNull();
  });
  test.each([
    "",
    "x".repeat(256),
    "a\u0000b",
    "a\nb",
    "a\u0085b",
    "x\ud83d",
    "\udc00y",
    "a\u2028b",
    "a\u202eb",
    " a",
    "a ",
  ])("%j is not a name", (name) => {
    expect(nameFault(name)).toMatch(/must/);
  });
  test("an occurrence's name is made of the instant in UTC with milliseconds, the channel and the recipient", () => {
    const due = new Date("2026-08-30T08:00:00+02:00");
    expect(occurrenceName("nightly-digest", due, "email", "ada@example.com")).toBe(
      "nightly-digest@2026-08-30T06:00:00.000Z/email/ada@example.com",
    );
  });
});

describe("the same request", () => {
  test("key order, number spelling and white space do not matter", () => {
    const a = JSON.parse('{"channel":"c","message":{"n":1.0,"m":100},"to":"x"}');
    const b = JSON.parse('{ "to": "x", "message": {"m": 1e2, "n": 1}, "channel": "c" }');
    expect(requestHash(a)).toEqual(requestHash(b));
  });
  test("where the name came from does not matter", () => {
    expect(requestHash({ name: "n", to: "x" })).toEqual(requestHash({ to: "x" }));
  });
  test("a field that is left out is not the same as its default", () => {
    expect(requestHash({ to: "x" })).not.toEqual(requestHash({ to: "x", on_unknown: "attention" }));
  });
  test("own keys called __proto__ and constructor count", () => {
    const plain = JSON.parse('{"metadata":{}}');
    expect(requestHash(plain)).not.toEqual(requestHash(JSON.parse('{"metadata":{"__proto__":{"x":1}}}')));
    expect(requestHash(plain)).not.toEqual(requestHash(JSON.parse('{"metadata":{"constructor":"y"}}')));
  });
});

describe("the places where two requests differ", () => {
  test.each<[string, unknown, unknown, string[]]>([
    ["nothing", { a: 1 }, { a: 1 }, []],
    ["a value", { a: { b: 1 } }, { a: { b: 2 } }, ["/a/b"]],
    ["a missing field", { a: 1, b: 2 }, { a: 1 }, ["/b"]],
    ["an added field", { a: 1 }, { a: 1, "x/y~z": 2 }, ["/x~1y~0z"]],
    ["an element", { l: [1, 2] }, { l: [1, 3] }, ["/l/1"]],
    ["a type", { l: [1] }, { l: { 0: 1 } }, ["/l"]],
    ["a key called __proto__", JSON.parse("{}"), JSON.parse('{"__proto__":1}'), ["/__proto__"]],
  ])("%s", (_rule, held, posted, pointers) => {
    expect(differingPointers(held, posted)).toEqual(pointers);
  });

  test("there are none exactly when the hashes agree", () => {
    const value = fc.dictionary(fc.string({ maxLength: 3 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 });
    fc.assert(
      fc.property(value, value, (a, b) => {
        const same = requestHash({ ...a, name: "n" }).equals(requestHash({ ...b, name: "n" }));
        const { name: _a, ...restA } = a;
        const { name: _b, ...restB } = b;
        expect(differingPointers(restA, restB).length === 0).toBe(same);
      }),
    );
  });
});
