import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { control } from "./control.ts";
import type { Desk, Effect, Fake, FakeOptions, Letter, LookedUp, RecordedCall, RecordedQuestion } from "./desk.ts";
import { play, reply } from "./play.ts";
import type { ConnectionFault, Reply, Step } from "./step.ts";

/** A provider over real HTTP on 127.0.0.1, with scripted faults; it counts effects, not answers. */
export async function openFake(desk: Desk, options: FakeOptions = {}): Promise<Fake> {
  const calls: RecordedCall[] = [];
  const questions: RecordedQuestion[] = [];
  const effects: Effect[] = [];
  const counts = { calls: 0, effects: 0 };
  const received = new Map<string, number>();
  const scripts = new Map<string, Step[]>();
  let standing: Step | null = null;
  let connectionFaults: ConnectionFault[] = [];
  let aheadMs = 0;
  const now = () => Date.now() + aheadMs;

  /** The message goes out, unless its key says otherwise. */
  async function perform(letter: Letter, delayMs = 0): Promise<Reply> {
    const instead = desk.admit(letter, now());
    if (instead) return instead;
    if (delayMs > 0) await wait(delayMs);
    const effect: Effect = { ...letter, at: now() };
    counts.effects += 1;
    received.set(letter.recipient, (received.get(letter.recipient) ?? 0) + 1);
    if (!options.countOnly) effects.push(effect);
    const reply = desk.accepted(letter, now());
    if (options.onEffect) await options.onEffect(effect);
    return reply;
  }

  async function serve(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const path = request.url ?? "/";
    if (path.startsWith("/_control/")) {
      reply(response, control(fake, path.slice("/_control/".length), body));
      return;
    }
    const { headers } = request;
    const arrivedAt = now();
    const asked = request.method === "GET" ? desk.lookUp?.({ path, headers, body }) : null;
    if (asked) {
      questions.push({ at: arrivedAt, path, headers });
      await answerQuestion(response, asked);
      return;
    }
    const letter = desk.read({ path, headers, body });
    const read = "recipient" in letter ? letter : { recipient: null, key: null };
    counts.calls += 1;
    if (!options.countOnly) {
      calls.push({ at: arrivedAt, path, headers, body, recipient: read.recipient, key: read.key });
    }
    if (!("recipient" in letter)) {
      reply(response, letter);
      return;
    }
    const step = scripts.get(letter.recipient)?.shift() ?? standing ?? { do: "accept" };
    const answer = await play(response, step, {
      perform: (delayMs) => perform(letter, delayMs),
      refused: (refusal) => desk.refused(letter, refusal, now()),
    });
    if (answer && !options.countOnly) desk.record?.(letter, answer, arrivedAt);
  }

  async function answerQuestion(response: ServerResponse, { name, reply: answer }: LookedUp): Promise<void> {
    const step = scripts.get(name)?.shift() ?? { do: "accept" };
    await play(response, step, { perform: async () => answer, refused: () => {} });
  }

  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      serve(request, response, Buffer.concat(chunks).toString("utf8")).catch((error: unknown) => {
        reply(response, { status: 599, body: String(error) });
      });
    });
    request.on("error", () => {});
  });
  server.keepAliveTimeout = options.idleMs ?? 5_000;
  server.prependListener("connection", (socket: Socket) => {
    const fault = connectionFaults.shift();
    if (fault === "reset") socket.resetAndDestroy();
    else if (fault === "close") socket.destroy();
  });
  server.on("clientError", (_error, socket) => socket.destroy());
  const port = await listen(server, options.port ?? 0);

  const fake: Fake = {
    url: `http://127.0.0.1:${port}`,
    calls,
    questions,
    effects,
    counts,
    received,
    script: (recipient, steps) => void scripts.set(recipient, [...steps]),
    always: (step) => {
      standing = step;
    },
    connections: (faults) => {
      connectionFaults = [...faults];
      // The next call needs a new connection.
      server.closeIdleConnections();
    },
    accept: (credentials) => desk.accept(credentials),
    advance: (ms) => {
      aheadMs += ms;
    },
    reset: () => {
      calls.length = 0;
      questions.length = 0;
      effects.length = 0;
      Object.assign(counts, { calls: 0, effects: 0 });
      received.clear();
      scripts.clear();
      standing = null;
      connectionFaults = [];
      desk.reset();
    },
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
  return fake;
}

async function listen(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  return (server.address() as AddressInfo).port;
}
