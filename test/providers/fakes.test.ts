import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { remoteFake } from "../fakes/control.ts";
import type { Effect } from "../fakes/desk.ts";
import { openFakeResend, resendError } from "../fakes/resend.ts";
import { openFakeTelegram } from "../fakes/telegram.ts";

const DAY_MS = 24 * 3_600_000;
const effectsSeen: Effect[] = [];
const resend = await openFakeResend({ onEffect: (effect) => void effectsSeen.push(effect) });
const strict = await openFakeResend({ storesErrors: true });
const telegram = await openFakeTelegram();

beforeEach(() => {
  for (const fake of [resend, strict, telegram]) fake.reset();
});
afterAll(() => Promise.all([resend.close(), strict.close(), telegram.close()]));

const email = async (key: string, text: string, url = resend.url) => {
  const response = await fetch(`${url}/emails`, {
    method: "POST",
    headers: { authorization: "Bearer re_1", "idempotency-key": key },
    body: JSON.stringify({ to: "a@x.test", subject: "s", text }),
  });
  return { status: response.status, ...((await response.json()) as { id?: string; name?: string }) };
};

describe("the fake Resend", () => {
  test("answers a known key and body with the same id, without effect", async () => {
    const first = await email("k", "t");
    expect(await email("k", "t")).toEqual(first);
    expect(resend.effects).toMatchObject([{ recipient: "a@x.test", key: "k", content: { text: "t" } }]);
    expect(resend.counts).toEqual({ calls: 2, effects: 1 });
    expect(effectsSeen.at(-1)).toBe(resend.effects[0]);
  });

  test("refuses a known key with another body", async () => {
    await email("k", "t");
    expect(await email("k", "other")).toMatchObject({ status: 409, name: "invalid_idempotent_request" });
  });

  test("says that the first request under a key is running", async () => {
    resend.script("a@x.test", [{ do: "accept", delayMs: 300 }]);
    const first = email("k", "t");
    await expect.poll(() => resend.counts.calls).toBe(1);
    expect(await email("k", "t")).toMatchObject({ status: 409, name: "concurrent_idempotent_requests" });
    expect((await first).id).toEqual((await email("k", "t")).id);
    expect(resend.effects).toHaveLength(1);
  });

  test("forgets a key after 24 hours, and sends again", async () => {
    const first = await email("k", "t");
    resend.advance(DAY_MS - 60_000);
    expect(await email("k", "t")).toEqual(first);
    resend.advance(60_001);
    expect((await email("k", "t")).id).not.toBe(first.id);
    expect(resend.received.get("a@x.test")).toBe(2);
  });

  test("remembers an error under its key only when told to", async () => {
    for (const [fake, status] of [
      [resend, 200],
      [strict, 422],
    ] as const) {
      fake.script("a@x.test", [resendError(422, "invalid_parameter")]);
      expect((await email("k", "t", fake.url)).status).toBe(422);
      expect((await email("k", "t", fake.url)).status).toBe(status);
    }
  });

  test("plays what always holds, under what is scripted for a recipient", async () => {
    resend.always(resendError(500, "application_error"));
    resend.script("a@x.test", [{ do: "accept" }]);
    expect((await email("1", "t")).status).toBe(200);
    expect((await email("2", "t")).status).toBe(500);
    resend.always(null);
    expect((await email("3", "t")).status).toBe(200);
  });

  test("resets a connection before it is read", async () => {
    resend.connections(["reset", "reset", "reset"]);
    await expect(email("k", "t")).rejects.toThrow();
    expect(resend.counts.calls).toBe(0);
  });
});

test("the fake Telegram remembers nothing: twice is two messages", async () => {
  const post = () =>
    fetch(`${telegram.url}/bot1:a/sendMessage`, { method: "POST", body: '{"chat_id":5,"text":"t"}' }).then((r) =>
      r.json(),
    );
  const [first, second] = [await post(), await post()] as { result: { message_id: number } }[];
  expect(second?.result.message_id).not.toBe(first?.result.message_id);
  expect(telegram.received.get("5")).toBe(2);
});

test("both run in a process of their own, scripted and read over HTTP", async () => {
  const child = spawn(process.execPath, ["test/fakes/serve.ts"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const urls = JSON.parse(line.toString()) as { resend: string; telegram: string };
  const remote = remoteFake(urls.resend);
  await remote.script("a@x.test", [resendError(500, "application_error")]);
  expect((await email("k", "t", urls.resend)).status).toBe(500);
  expect((await email("k", "t", urls.resend)).status).toBe(200);
  expect(await remote.effects()).toMatchObject([{ recipient: "a@x.test", key: "k" }]);
  expect(await remote.calls()).toHaveLength(2);
  expect(await remote.counts()).toEqual({ calls: 2, effects: 1, recipients: 1, repeated: {} });
  await remote.accept([]);
  expect((await email("k", "t", urls.resend)).status).toBe(401);
  expect(await remoteFake(urls.telegram).counts()).toMatchObject({ calls: 0 });
  child.kill("SIGTERM");
  const [code] = (await once(child, "exit")) as [number];
  expect(code).toBe(0);
});
