import { createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterEach, describe, expect, test } from "vitest";
import { redactor } from "../../src/ledger/redact.ts";
import { type Exchange, type HttpRequest, openTransport, readBody } from "../../src/providers/transport.ts";
import { SELF_SIGNED } from "./self-signed.ts";

const transport = openTransport(redactor([]));
const open: Server[] = [];
afterEach(() => {
  for (const server of open.splice(0)) server.close();
});

/** A server that does `serve` with each connection; its port. */
async function listening(serve: (socket: Socket) => void, server: Server = createServer()): Promise<number> {
  server.on("connection", (socket: Socket) => {
    socket.on("error", () => {});
    serve(socket);
  });
  server.on("tlsClientError", () => {});
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as { port: number }).port;
}

const post = (url: string, given: Partial<HttpRequest> = {}): Promise<Exchange> =>
  transport.post({
    url: new URL(url),
    headers: { "content-type": "application/json" },
    body: '{"a":1}',
    timeoutMs: 1_000,
    signal: new AbortController().signal,
    ...given,
  });

/** Calls back with the whole request once its body is there. */
const onRequest = (socket: Socket, then: (request: string) => void): void => {
  let seen = "";
  socket.on("data", (chunk) => {
    seen += chunk.toString("latin1");
    const request = /\{"[an]":\d+\}$/.exec(seen);
    if (!request) return;
    seen = "";
    then(request[0]);
  });
};

const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const answering = (text: string, then: (socket: Socket) => void = () => {}) =>
  listening((socket) => onRequest(socket, () => socket.write(text, () => then(socket))));

describe("proven: no byte of the request was written", () => {
  const NOTHING_LEFT = { phase: "not_sent", status: null, body: null };

  test("the connection is refused", async () => {
    const port = await listening(() => {});
    await new Promise((resolve) => open.pop()?.close(resolve));
    const exchange = await post(`http://127.0.0.1:${port}/`);
    expect(exchange).toMatchObject({ ...NOTHING_LEFT, error: { code: "ECONNREFUSED" } });
    expect(exchange.error?.message).not.toBe("");
  });

  test("the connection is refused on both stacks", async () => {
    const port = await listening(() => {});
    await new Promise((resolve) => open.pop()?.close(resolve));
    const exchange = await post(`http://localhost:${port}/`);
    expect(exchange).toMatchObject({ ...NOTHING_LEFT, error: { code: "ECONNREFUSED" } });
    expect(exchange.error?.message).not.toBe("");
  });

  test("the name is not resolved", async () => {
    expect(await post("http://no-such-host.invalid/")).toMatchObject(NOTHING_LEFT);
  });

  test("the peer resets the connection in the TLS handshake", async () => {
    let seen = 0;
    const port = await listening((socket) =>
      socket.once("data", () => {
        seen += 1;
        socket.resetAndDestroy();
      }),
    );
    expect(await post(`https://127.0.0.1:${port}/`)).toMatchObject(NOTHING_LEFT);
    expect(seen).toBe(1);
  });

  test("the peer closes the connection in the TLS handshake", async () => {
    const port = await listening((socket) => socket.once("data", () => socket.end()));
    expect(await post(`https://127.0.0.1:${port}/`)).toMatchObject(NOTHING_LEFT);
  });

  test("the peer does not speak TLS", async () => {
    const port = await listening((socket) => socket.once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")));
    expect(await post(`https://127.0.0.1:${port}/`)).toMatchObject(NOTHING_LEFT);
  });

  test("the certificate is not trusted", async () => {
    let read = "";
    const server = createTlsServer(SELF_SIGNED);
    server.on("secureConnection", (socket) => socket.on("data", (chunk) => (read += chunk)).on("error", () => {}));
    const port = await listening(() => {}, server);
    expect(await post(`https://127.0.0.1:${port}/`)).toMatchObject({
      ...NOTHING_LEFT,
      error: { code: "DEPTH_ZERO_SELF_SIGNED_CERT" },
    });
    expect(read).toBe("");
  });

  test("the TLS handshake takes longer than the call may", async () => {
    const port = await listening(() => {});
    expect(await post(`https://127.0.0.1:${port}/`, { timeoutMs: 250 })).toMatchObject({
      ...NOTHING_LEFT,
      error: { code: "TIMEOUT" },
    });
  });

  test("the call is cut off before anything was written, and nothing is written later", async () => {
    const aborted = new AbortController();
    let greet: () => void = () => {};
    const greeted = new Promise<void>((resolve) => {
      greet = resolve;
    });
    const port = await listening((socket) => socket.once("data", greet));
    const exchange = post(`https://127.0.0.1:${port}/`, { signal: aborted.signal });
    await greeted;
    aborted.abort();
    expect(await exchange).toMatchObject({ ...NOTHING_LEFT, error: { code: "ABORTED" } });
  });

  test("the signal was aborted before the call", async () => {
    let connections = 0;
    const port = await listening(() => {
      connections += 1;
    });
    expect(await post(`http://127.0.0.1:${port}/`, { signal: AbortSignal.abort() })).toMatchObject(NOTHING_LEFT);
    expect(connections).toBe(0);
  });

  test("a header cannot be written", async () => {
    const port = await answering(OK);
    expect(await post(`http://127.0.0.1:${port}/`, { headers: { "x-a": "b\r\nc: d" } })).toMatchObject(NOTHING_LEFT);
  });
});

describe("not proven: the request was written", () => {
  const LEFT = { phase: "sent", status: null, body: null };

  test("a reset after the request was read", async () => {
    const port = await listening((socket) => onRequest(socket, () => socket.resetAndDestroy()));
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ ...LEFT, error: { code: "ECONNRESET" } });
  });

  test("a reset at the request's first byte", async () => {
    const port = await listening((socket) => socket.once("data", () => socket.resetAndDestroy()));
    expect(await post(`http://127.0.0.1:${port}/`, { body: "x".repeat(5_000_000) })).toMatchObject(LEFT);
  });

  test("a close after the request was read", async () => {
    const port = await listening((socket) => onRequest(socket, () => socket.destroy()));
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject(LEFT);
  });

  test("no answer in time: the socket is closed, so that the provider sees it", async () => {
    let closed: () => void = () => {};
    const close = new Promise<void>((resolve) => {
      closed = resolve;
    });
    const port = await listening((socket) => {
      socket.on("close", closed);
      onRequest(socket, () => {});
    });
    expect(await post(`http://127.0.0.1:${port}/`, { timeoutMs: 250 })).toMatchObject({
      ...LEFT,
      error: { code: "TIMEOUT" },
    });
    await close;
  });

  test("cut off after the request was written", async () => {
    const aborted = new AbortController();
    const port = await listening((socket) => onRequest(socket, () => aborted.abort()));
    const exchange = await post(`http://127.0.0.1:${port}/`, { signal: aborted.signal });
    expect(exchange).toMatchObject({ ...LEFT, error: { code: "ABORTED" } });
  });

  test("something that is not HTTP", async () => {
    const port = await answering("SMTP ready\r\n");
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject(LEFT);
  });
});

describe("what was seen is kept", () => {
  test("the status, when the body is cut off", async () => {
    const port = await answering("HTTP/1.1 202 Accepted\r\ncontent-length: 100\r\n\r\n{", (socket) => socket.destroy());
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ phase: "sent", status: 202, body: null });
  });

  test("the status, when the body never ends", async () => {
    const port = await answering("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{");
    expect(await post(`http://127.0.0.1:${port}/`, { timeoutMs: 250 })).toMatchObject({
      status: 200,
      body: null,
      error: { code: "TIMEOUT" },
    });
  });

  test("the answer after an interim one", async () => {
    const port = await answering(`HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${OK}`);
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ status: 200, body: "{}", error: null });
  });

  test("an interim answer is none", async () => {
    const port = await answering("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", (socket) => socket.destroy());
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ phase: "sent", status: null, body: null });
  });

  test.each([301, 302, 303, 307, 308])("a %d, which is not followed", async (status) => {
    let elsewhere = 0;
    const other = await listening(() => {
      elsewhere += 1;
    });
    const port = await answering(
      `HTTP/1.1 ${status} Moved\r\nlocation: http://127.0.0.1:${other}/\r\ncontent-length: 0\r\n\r\n`,
    );
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ status });
    expect(elsewhere).toBe(0);
  });

  test("an answer that comes before the request is read to its end", async () => {
    const port = await listening((socket) =>
      socket.once("data", () =>
        socket.write("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
      ),
    );
    const exchange = await post(`http://127.0.0.1:${port}/`, { body: "x".repeat(1_000_000) });
    expect(exchange).toMatchObject({ phase: "sent", status: 413 });
  });
});

test("many calls under one signal leave no listener and no warning behind", async () => {
  const warnings: unknown[] = [];
  const warn = (warning: unknown) => warnings.push(warning);
  process.on("warning", warn);
  const { signal } = new AbortController();
  const port = await answering(OK);
  await Promise.all(Array.from({ length: 50 }, () => post(`http://127.0.0.1:${port}/`, { signal })));
  process.off("warning", warn);
  expect(warnings).toEqual([]);
});

test("a connection is used again while it is fresh", async () => {
  let connections = 0;
  const port = await listening((socket) => {
    connections += 1;
    onRequest(socket, () => socket.write(OK));
  });
  for (let made = 0; made < 5; made += 1)
    expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ status: 200 });
  // An answer is told a moment before its connection is free, so that the next call may open a second one.
  expect(connections).toBeLessThanOrEqual(2);
});

test("in the race with a server that closes idle connections, not_sent is never said of a request that arrived", async () => {
  const arrived = new Set<string>();
  const port = await listening((socket) =>
    onRequest(socket, (request) => {
      arrived.add(request);
      socket.write(OK);
      setTimeout(() => (arrived.size % 2 === 0 ? socket.end() : socket.resetAndDestroy()), 3);
    }),
  );
  const wrong: unknown[] = [];
  for (let made = 0; made < 60; made += 1) {
    const body = `{"n":${made}}`;
    const exchange = await post(`http://127.0.0.1:${port}/`, { body });
    const answered = exchange.status === 200;
    if (exchange.phase === "not_sent" && arrived.has(body)) wrong.push({ made, exchange });
    if (answered && !arrived.has(body)) wrong.push({ made, exchange });
    await new Promise((resolve) => setTimeout(resolve, made % 7));
  }
  expect(wrong).toEqual([]);
  expect(arrived.size).toBeGreaterThan(30);
});

test("a body is JSON, a page, other text, or nothing", () => {
  expect(readBody({ body: ' {"a":1} ' })).toEqual({ kind: "json", value: { a: 1 } });
  expect(readBody({ body: "null" })).toEqual({ kind: "json", value: null });
  expect(readBody({ body: "\n<html>" }).kind).toBe("page");
  expect(readBody({ body: "Forbidden" }).kind).toBe("text");
  expect(readBody({ body: '{"cut' }).kind).toBe("text");
  expect(readBody({ body: " " }).kind).toBe("none");
  expect(readBody({ body: null }).kind).toBe("none");
});
