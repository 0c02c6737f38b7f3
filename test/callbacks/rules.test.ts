import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import { isPublicAddress, literalAddress } from "../../src/callbacks/address.ts";
import { bodyOf, outcomeOf } from "../../src/callbacks/callbacks.ts";
import { nextWaitS } from "../../src/callbacks/ladder.ts";
import { openPoster } from "../../src/callbacks/post.ts";
import { isSecret, newSecret } from "../../src/callbacks/sign.ts";

describe("addresses", () => {
  test.each([
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "fe80::1",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "not an address",
    "",
  ])("%s is not public", (address) => expect(isPublicAddress(address)).toBe(false));

  test.each(["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700::1111"])("%s is", (address) => {
    expect(isPublicAddress(address)).toBe(true);
  });

  test.each([
    ["http://127.1/", "127.0.0.1"],
    ["http://2130706433/", "127.0.0.1"],
    ["http://0x7f.0.0.1/", "127.0.0.1"],
    ["http://0177.0.0.1/", "127.0.0.1"],
    ["http://[::ffff:127.0.0.1]/", "::ffff:7f00:1"],
    ["http://１２７.0.0.1/", "127.0.0.1"],
    ["http://example.com/", null],
  ])("%s spells out %s", (url, address) => expect(literalAddress(new URL(url))).toBe(address));
});

test("no spelling of a local address, and no name that leads to one, is connected to", async () => {
  let connections = 0;
  const server = createServer((_request, response) => response.end("ok"));
  server.on("connection", () => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, "::", resolve));
  const { port } = server.address() as AddressInfo;
  const poster = openPoster({ allowPrivate: false, timeoutMs: 2_000 });
  const hosts = [
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "2130706433",
    "0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "localhost.",
  ];
  for (const host of hosts) {
    const result = await poster.post(`http://${host}:${port}/`, {}, "{}");
    expect([host, result.ok, result.status]).toEqual([host, false, null]);
    expect(result.error).toMatch(/public|resolve|ENOTFOUND|EAI_AGAIN|address/);
  }
  expect(connections).toBe(0);
  const open = openPoster({ allowPrivate: true, timeoutMs: 2_000 });
  expect((await open.post(`http://127.0.0.1:${port}/`, {}, "{}")).ok).toBe(true);
  await Promise.all([poster.close(), open.close()]);
  server.close();
});

describe("the ladder", () => {
  test("goes up in eight tries, and ends", () => {
    expect([1, 2, 3, 4, 5, 6, 7, 8].map((attempt) => nextWaitS(attempt, null))).toEqual([
      5,
      300,
      1_800,
      7_200,
      18_000,
      36_000,
      36_000,
      null,
    ]);
  });

  test("waits as long as the receiver asks, a day at most", () => {
    expect([nextWaitS(1, 60), nextWaitS(2, 60), nextWaitS(1, 1e9), nextWaitS(8, 60)]).toEqual([60, 300, 86_400, null]);
  });

  const failedWith = (status: number | null, failingSince: Date | null = null) =>
    outcomeOf({ attempt: 1, failingSince }, { ok: false, status, error: "no", retryAfterS: null }, 10 * 86_400_000);

  test("410 disables at once, and so do more than five days without a success", () => {
    expect(failedWith(410)).toMatchObject({ disables: "gone" });
    expect(failedWith(500)).toMatchObject({ disables: null, waitS: 5 });
    expect(failedWith(500, new Date(5.5 * 86_400_000))).toMatchObject({ disables: null });
    expect(failedWith(null, new Date(4 * 86_400_000))).toMatchObject({ disables: expect.stringContaining("5 days") });
  });
});

test("a secret is whsec_ and 24 to 64 bytes", () => {
  expect([newSecret(), newSecret()].map(isSecret)).toEqual([true, true]);
  for (const text of ["", "whsec_", "whsec_c2hvcnQ=", `x${newSecret()}`, `${newSecret()}\n`])
    expect(isSecret(text)).toBe(false);
});

test("a message tells what happened and how the delivery stands", () => {
  const told = {
    tx: "7",
    id: "9",
    type: "delivery.sent",
    at: new Date(0),
    data: { attempt: 1 },
    delivery: { id: "d" },
  };
  expect(JSON.parse(bodyOf(told))).toEqual({
    type: "delivery.sent",
    timestamp: "1970-01-01T00:00:00.000Z",
    data: { event_id: "7-9", delivery: { id: "d" }, event: { attempt: 1 } },
  });
});
