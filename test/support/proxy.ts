import { connect, createServer, type Server, type Socket } from "node:net";

/** What becomes of a chunk that the client sends to the server. */
export type Treatment = "pass" | "cut before" | "cut after";

/**
 * A TCP proxy before PostgreSQL that can break connections at chosen moments: before a chunk reaches the server, or after
 * the server has had it and before its answer comes back.
 */
export async function openProxy(targetUrl: string) {
  const target = new URL(targetUrl);
  const sockets = new Set<Socket>();
  let treat: (chunk: string, connection: Socket) => Treatment = () => "pass";
  let refusing = false;
  let stalled = false;
  const server: Server = createServer((client) => {
    if (refusing) {
      client.destroy();
      return;
    }
    const upstream = connect(Number(target.port || 5432), target.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => sockets.delete(socket));
    }
    let deaf = false;
    client.on("data", (chunk) => {
      if (stalled) return;
      const treatment = treat(chunk.toString("latin1"), client);
      if (treatment === "cut before") {
        client.destroy();
        upstream.destroy();
        return;
      }
      upstream.write(chunk);
      if (treatment === "cut after") {
        deaf = true;
        // The server has read it when it answers.
        upstream.once("data", () => {
          client.destroy();
          upstream.destroy();
        });
      }
    });
    upstream.on("data", (chunk) => {
      if (!deaf && !stalled) client.write(chunk);
    });
    client.on("close", () => upstream.destroy());
    upstream.on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const url = new URL(targetUrl);
  url.hostname = "127.0.0.1";
  url.port = String(typeof address === "object" && address ? address.port : 0);
  return {
    url: url.href,
    treat(how: (chunk: string, connection: Socket) => Treatment) {
      treat = how;
    },
    /** Breaks the connection once, at the commit of the transaction that sends a statement like this. */
    breakCommitOf(statement: RegExp, how: Exclude<Treatment, "pass">) {
      let within: Socket | null = null;
      const done = new Promise<void>((resolve) => {
        treat = (chunk, connection) => {
          if (statement.test(chunk)) within = connection;
          if (within !== connection || !/commit/i.test(chunk)) return "pass";
          treat = () => "pass";
          resolve();
          return how;
        };
      });
      return done;
    },
    /** The database is away: open connections break, new ones are refused. */
    away(isAway: boolean) {
      refusing = isAway;
      if (isAway) for (const socket of sockets) socket.destroy();
    },
    /** The database hangs: nothing goes through any more. */
    stall(isStalled: boolean) {
      stalled = isStalled;
    },
    close: () =>
      new Promise<void>((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
