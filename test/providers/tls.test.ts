import { type AddressInfo, connect, createServer as createGate, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { createServer, getCACertificates, setDefaultCACertificates, type TLSSocket } from "node:tls";
import { afterAll, expect, test } from "vitest";
import { redactor } from "../../src/ledger/redact.ts";
import { openTransport } from "../../src/providers/transport.ts";
import { SELF_SIGNED } from "./self-signed.ts";

// In this file the certificate is trusted: the handshake succeeds, and what happens after it can be seen.
setDefaultCACertificates([...getCACertificates("default"), SELF_SIGNED.cert]);

let serve: (socket: TLSSocket, wire: Socket | undefined) => void = () => {};
let wire: Socket | undefined;
const server = createServer(SELF_SIGNED, (socket) => {
  socket.on("error", () => {});
  socket.once("data", () => serve(socket, wire));
});
server.on("connection", (socket: Socket) => {
  wire = socket;
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}/`);
const transport = openTransport(redactor([]));
const post = () =>
  transport.post({ url, headers: {}, body: "{}", timeoutMs: 1_000, signal: new AbortController().signal });

afterAll(async () => {
  await transport.close();
  server.close();
});

test("over TLS, a call is answered", async () => {
  serve = (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
  expect(await post()).toMatchObject({ phase: "sent", status: 200, body: "{}" });
});

test("over TLS, a reset after the request was read is not taken for one in the handshake", async () => {
  serve = (_socket, raw) => raw?.resetAndDestroy();
  expect(await post()).toMatchObject({ phase: "sent", status: null });
});

test("over TLS, a close after the request was read is not taken for one in the handshake", async () => {
  serve = (socket) => socket.destroy();
  expect(await post()).toMatchObject({ phase: "sent", status: null });
});

test("closing the transport ends the calls under way, each with its phase", async () => {
  const closing = openTransport(redactor([]));
  const read = new Promise<void>((resolve) => {
    serve = () => resolve();
  });
  const under = closing.post({ url, headers: {}, body: "{}", timeoutMs: 1_000, signal: new AbortController().signal });
  await read;
  await closing.close();
  expect(await under).toMatchObject({ phase: "sent", status: null });
  const late = { url, headers: {}, body: "{}", timeoutMs: 1_000, signal: new AbortController().signal };
  expect(await closing.post(late)).toMatchObject({ phase: "not_sent" });
});

test("a call that was given up in the handshake writes nothing when the handshake succeeds later", async () => {
  let written = 0;
  serve = () => {
    written += 1;
  };
  const { promise: opened, resolve: openGate } = Promise.withResolvers<void>();
  const { promise: over, resolve: end } = Promise.withResolvers<void>();
  const gate = createGate(async (socket) => {
    socket.on("error", () => {}).on("close", () => end());
    await opened;
    const upstream = connect(Number(url.port), "127.0.0.1");
    upstream.on("error", () => {}).pipe(socket);
    socket.pipe(upstream);
  });
  await new Promise<void>((resolve) => gate.listen(0, "127.0.0.1", resolve));
  const through = new URL(`https://127.0.0.1:${(gate.address() as AddressInfo).port}/`);
  const given = { url: through, headers: {}, body: "{}", timeoutMs: 100, signal: new AbortController().signal };
  expect(await transport.post(given)).toMatchObject({ phase: "not_sent", error: { code: "TIMEOUT" } });
  openGate();
  // Once secured, the connection is dropped instead of written to; a second's wait stands in for one that is kept.
  await Promise.race([over, wait(1_000)]);
  gate.close();
  expect(written).toBe(0);
});
