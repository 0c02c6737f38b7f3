import { type AddressInfo, connect } from "node:net";
import { type ServerType, serve } from "@hono/node-server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SERVER_TIMEOUTS } from "../../src/api/app.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { ADMIN_KEY, type App, email, openApp } from "./open-app.ts";

const LIMIT = 100_000;
let database: TestDatabase;
let app: App;
let server: ServerType;
let port: number;

beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db, { maxBodyBytes: LIMIT });
  // The timeouts of the service, shortened alike.
  const serverOptions = { headersTimeout: 300, requestTimeout: 600, connectionsCheckingInterval: 100 };
  expect(Object.keys(SERVER_TIMEOUTS)).toEqual(expect.arrayContaining(["headersTimeout", "requestTimeout"]));
  server = serve({ fetch: app.app.fetch, hostname: "127.0.0.1", port: 0, serverOptions });
  if (!server.listening) await new Promise((resolve) => server.once("listening", resolve));
  port = (server.address() as AddressInfo).port;
});
afterAll(async () => {
  server.close();
  if ("closeAllConnections" in server) server.closeAllConnections();
  await database.close();
});

/** A good delivery in exactly so many bytes. */
function sized(bytes: number): string {
  const request = email({ message: { subject: "s", text: "" } });
  request.message = { subject: "s", text: "x".repeat(bytes - JSON.stringify(request).length) };
  return JSON.stringify(request);
}

async function send(body: BodyOf, more: Record<string, string> = {}) {
  const response = await fetch(`http://127.0.0.1:${port}/v1/deliveries`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_KEY}`, "content-type": "application/json", ...more },
    body,
    duplex: "half",
  } as RequestInit);
  return { status: response.status, body: (await response.json()) as { type?: string } };
}
type BodyOf = string | ReadableStream<Uint8Array>;

const chunked = (text: string) => new Blob([text]).stream() as ReadableStream<Uint8Array>;

describe("the limit of a body", () => {
  test("passes exactly at the limit, with and without a length", async () => {
    expect((await send(sized(LIMIT))).status).toBe(202);
    expect((await send(chunked(sized(LIMIT)))).status).toBe(202);
  });

  test("fails one byte over, with and without a length", async () => {
    const over = { status: 413, body: { type: "/problems/body-too-large" } };
    expect(await send(sized(LIMIT + 1))).toMatchObject(over);
    expect(await send(chunked(sized(LIMIT + 1)))).toMatchObject(over);
  });

  test("holds while reading: a stream without an end is answered, and does not fill the memory", async () => {
    const before = process.memoryUsage.rss();
    const head =
      "POST /v1/deliveries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
      `Authorization: Bearer ${ADMIN_KEY}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const { answer, sentBytes } = await flood(head, 300_000_000);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(sentBytes).toBeLessThan(50_000_000);
    expect(process.memoryUsage.rss() - before).toBeLessThan(100_000_000);
  });

  test("a caller that goes on sending is cut off", async () => {
    const head =
      "POST /v1/deliveries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
      `Authorization: Bearer ${ADMIN_KEY}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const { answer, sentBytes } = await flood(head, 1_000_000_000, "deaf");
    expect(answer).toMatch(/^HTTP\/1\.1 413 |^$/);
    expect(sentBytes).toBeLessThan(100_000_000);
  });

  test("a length that is announced and too large is refused before anything is sent", async () => {
    const head =
      "POST /v1/deliveries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
      `Authorization: Bearer ${ADMIN_KEY}\r\nContent-Length: 1000000000\r\n\r\n`;
    const { answer } = await flood(head, 0);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
  });
});

test("an upload that stalls is closed by the server", async () => {
  const head =
    "POST /v1/deliveries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
    `Authorization: Bearer ${ADMIN_KEY}\r\nContent-Length: 100\r\n\r\n{"name":`;
  const { closedAfterMs } = await flood(head, 0);
  expect(closedAfterMs).toBeLessThan(5_000);
});

test("a caller that hangs up in mid-body is no failure of ours", async () => {
  app.logged.length = 0;
  const socket = connect(port, "127.0.0.1");
  await new Promise((resolve) => socket.once("connect", resolve));
  socket.write(
    "POST /v1/deliveries HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
      `Authorization: Bearer ${ADMIN_KEY}\r\nContent-Length: 100\r\n\r\n{"name":`,
  );
  await new Promise((resolve) => setTimeout(resolve, 100));
  socket.destroy();
  await expect.poll(() => app.logged.filter((line) => line.includes("http.request"))).toHaveLength(1);
  expect(app.logged.join("")).not.toContain('"level":"error"');
  expect((await send(sized(500))).status).toBe(202);
});

/** Writes the head, then chunks until there is an answer or the connection ends. */
function flood(
  head: string,
  maxBytes: number,
  ears: "open" | "deaf" = "open",
): Promise<{ answer: string; sentBytes: number; closedAfterMs: number }> {
  const startedAt = performance.now();
  const chunk = Buffer.from(`10000\r\n${"[".repeat(0x1_0000)}\r\n`);
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    let answer = "";
    let sentBytes = 0;
    const done = () => {
      socket.destroy();
      resolve({ answer, sentBytes, closedAfterMs: performance.now() - startedAt });
    };
    const write = () => {
      while (sentBytes < maxBytes && !socket.destroyed) {
        sentBytes += chunk.length;
        if (!socket.write(chunk)) return;
      }
    };
    socket.on("connect", () => {
      socket.write(head);
      write();
    });
    socket.on("drain", write);
    socket.on("data", (bytes) => {
      answer += bytes.toString("latin1");
      if (ears === "open" && answer.includes("\r\n\r\n")) done();
    });
    socket.on("close", done);
    socket.on("error", () => {});
  });
}
