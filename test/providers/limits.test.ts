import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PROVIDERS } from "../../src/providers/index.ts";
import { openResend } from "../../src/providers/resend/adapter.ts";
import type { Fake } from "../fakes/desk.ts";
import { openFakeResend } from "../fakes/resend.ts";
import { call } from "./build.ts";

describe("answers that speak against the provider for everyone", () => {
  const failing = (name: string) =>
    new Set(PROVIDERS[name]?.capability.answers.filter((row) => row.failing).map(({ reason }) => reason));

  test.each(["resend", "telegram"])("%s: it could not be reached, failed, was silent, or broke off", (name) => {
    expect(failing(name)).toEqual(new Set(["not_sent", "server_error", "timeout", "connection_lost"]));
  });

  test("the sandbox: only where it is told to be down", () => {
    const rows = PROVIDERS["sandbox"]?.capability.answers.filter((row) => row.failing);
    expect(rows?.map(({ when }) => when.code)).toEqual([["EHOSTDOWN"]]);
  });
});

describe("resend's answers say how many requests a second the account may make", () => {
  let resend: Fake;
  beforeAll(async () => {
    resend = await openFakeResend();
  });
  afterAll(() => resend.close());

  test.each<[Record<string, string>, number | null]>([
    [{ "ratelimit-limit": "2", "ratelimit-policy": "2;w=1" }, 2],
    [{ "ratelimit-limit": "100", "ratelimit-policy": "100;w=10" }, 10],
    [{ "ratelimit-limit": "5" }, 5],
    [{ "ratelimit-limit": "5", "ratelimit-policy": '"default";q=7' }, 5],
    [{ "ratelimit-policy": "5;w=0" }, null],
    [{ "ratelimit-policy": "0;w=1" }, null],
    [{ "ratelimit-policy": "1;w=999999" }, null],
    [{ "ratelimit-limit": "999999999" }, null],
    [{ "ratelimit-limit": "0" }, null],
    [{ "ratelimit-limit": "-1" }, null],
    [{ "ratelimit-limit": "many" }, null],
    [{ "ratelimit-limit": "" }, null],
    [{}, null],
  ])("%j", async (headers, limitPerSecond) => {
    const adapter = openResend({ apiKey: "re_1", baseUrl: resend.url });
    resend.script("ada@example.com", [{ do: "answer", status: 200, json: { id: "e1" }, headers }]);
    const answer = await adapter.call(call({ body: '{"to":"ada@example.com"}' }));
    expect(answer).toMatchObject({ status: 200, limitPerSecond });
    await adapter.close();
  });
});
