import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseJson } from "../../src/api/json.ts";
import { Problem } from "../../src/api/problem.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, email, openApp } from "./open-app.ts";

const parse = (text: string | Uint8Array): unknown =>
  parseJson(typeof text === "string" ? new TextEncoder().encode(text) : text);

function refusal(text: string | Uint8Array): Problem {
  try {
    parse(text);
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  throw new Error("it was taken");
}

const pointersOf = (text: string) => refusal(text).errors?.map(({ pointer }) => pointer);
const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);

describe("a body is refused with 400 when it", () => {
  test.each([
    ["is empty", ""],
    ["is blank", "  \n"],
    ["breaks off", '{"a":'],
    ["has a comma too many", '{"a":1,}'],
    ["has a comment", '{"a":1 /* one */}'],
    ["has single quotes", "{'a':1}"],
    ["has something behind it", '{"a":1} {"b":2}'],
    ["has a raw control character in a text", '"a\nb"'],
    ["has NaN", '{"a":NaN}'],
    ["has a number with a leading zero", '{"a":01}'],
    ["begins with a byte order mark", "\ufeff{}"],
    ["has 65 levels", nested(65)],
    ["has 5,000 levels of lists", nested(5_000)],
    ["has 5,000 levels of objects", `${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}`],
    ["has half a million levels", nested(500_000)],
  ])("%s", (_rule, text) => {
    expect(refusal(text)).toMatchObject({ type: "invalid-json", status: 400 });
  });

  test("is not UTF-8", () => {
    for (const bytes of [[0xff], [0x22, 0xc3, 0x22], [0x22, 0xed, 0xa0, 0xbd, 0x22], [0xfe, 0xff, 0x00, 0x7b]]) {
      expect(refusal(Uint8Array.from(bytes)).type).toBe("invalid-json");
    }
  });
});

test("broken syntax is told with its place, and without the body's contents", () => {
  const { message } = refusal('{"name":"a secret" "to":1}');
  expect(message).toMatch(/position 19/);
  expect(message).not.toContain("secret");
});

describe("a key that is there twice is refused, wherever it is", () => {
  test.each([
    ['{"name":"a","name":"a"}', "/name"],
    ['{"a":{"b":[0,{"c":1,"c":2}]}}', "/a/b/1/c"],
    ['{"name":1,"\\u006eame":2}', "/name"],
    ['{"a/b":1,"a\\/b":2}', "/a~1b"],
    ['{"__proto__":1,"__proto__":2}', "/__proto__"],
    ['{"":1,"":2}', "/"],
  ])("%s", (text, pointer) => {
    expect(pointersOf(text)).toEqual([pointer]);
  });

  test("but the same key of two objects is not twice", () => {
    expect(parse('{"a":{"x":1},"b":{"x":2},"x":[{"x":"x"},{"x":"x"}]}')).toBeTruthy();
  });
});

describe("numbers", () => {
  test.each([
    "9007199254740993",
    "1e400",
    "-1e400",
    "1e-400",
    "0.1000000000000000055",
    "123456789012345678901",
    "4.94065645841246e-324",
  ])("that a double cannot hold are refused: %s", (literal) => {
    expect(pointersOf(`{"a":[1,${literal}]}`)).toEqual(["/a/1"]);
  });

  test.each([
    "0",
    "-0",
    "0e9999",
    "0.000000000000000000000000",
    "9007199254740992",
    "9007199254740991",
    "1.50",
    "1.5000000000000000000000000",
    "1e2",
    "100000000000000000000000",
    "1e308",
    "5e-324",
    "0.1",
    "123456.789012345",
    "-0.30000000000000004",
  ])("that a double holds are taken, however they are spelt: %s", (literal) => {
    expect(parse(`[${literal}]`)).toEqual([Number(literal)]);
  });

  test("of a million digits are decided at once", () => {
    const startedAt = performance.now();
    expect(pointersOf(`[1${"0".repeat(1_000_000)}1]`)).toEqual(["/0"]);
    expect(pointersOf(`[0.1${"0".repeat(1_000_000)}1]`)).toEqual(["/0"]);
    expect(parse(`[0.5${"0".repeat(1_000_000)}]`)).toEqual([0.5]);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });

  test("that JavaScript writes are always taken", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        expect(parse(`[${JSON.stringify(value)}]`)).toEqual([JSON.parse(JSON.stringify(value))]);
      }),
    );
  });
});

test("whatever JavaScript writes as JSON is read as JavaScript reads it", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 8 }), fc.constantFrom(0, 2, "\t"), (text, indent) => {
      const spelt = JSON.stringify(JSON.parse(text), null, indent);
      expect(parse(spelt)).toEqual(JSON.parse(spelt));
    }),
  );
});

test("a key named __proto__ stays a key", () => {
  const value = parse('{"__proto__":{"x":1}}') as object;
  expect(Object.hasOwn(value, "__proto__")).toBe(true);
  expect((value as { x?: unknown }).x).toBeUndefined();
});

test("64 levels are taken", () => {
  expect(parse(nested(64))).toBeTruthy();
});

describe("the content type", () => {
  let database: TestDatabase;
  let app: App;
  beforeAll(async () => {
    database = await testDatabase();
    app = await openApp(database.db);
  });
  afterAll(() => database.close());
  const as = (headers: Record<string, string>) => app.post(email(), { headers });

  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/json-seq",
    "application/problem+json",
    "application/json; charset=utf-16",
    "application/json; charset=iso-8859-1",
    "multipart/form-data; boundary=application/json",
    "",
  ])("must be JSON in UTF-8: %s is refused", async (type) => {
    expect((await as({ "content-type": type })).body).toMatchObject({
      status: 415,
      type: "/problems/unsupported-media-type",
    });
  });

  test.each([
    "application/json",
    "Application/JSON",
    "application/json; charset=utf-8",
    'application/json;charset="UTF-8"',
    "application/json; version=1",
  ])("%s is taken", async (type) => {
    expect((await as({ "content-type": type })).status).toBe(202);
  });

  test.each(["gzip", "br", "deflate, gzip", "x"])("a body encoded with %s is refused", async (encoding) => {
    expect((await as({ "content-encoding": encoding })).status).toBe(415);
  });
});
