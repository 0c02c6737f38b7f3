import type { ServerResponse } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import type { Reply, Step } from "./step.ts";

/** What a step can make of a request. */
export interface Scene {
  /** The provider does what it is asked, unless it knows better: its answer. */
  perform(delayMs?: number): Promise<Reply>;
  /** It is answered this, without effect. */
  refused(reply: Reply): void;
}

/**
 * Plays one step on a connection. Resolves with what the provider itself answered, whether that arrived or not (a page is its
 * edge's); null: the request never reached it.
 */
export async function play(response: ServerResponse, step: Step, scene: Scene): Promise<Reply | null> {
  const { socket } = response;
  if (step.do === "accept") {
    const answer = await scene.perform(step.delayMs);
    reply(response, answer);
    return answer;
  }
  const performed = step.effect ? await scene.perform() : null;
  switch (step.do) {
    case "answer": {
      const said = { status: step.status, headers: step.headers ?? {}, body: step.raw ?? "" };
      const answer = "json" in step ? { ...said, ...jsonOf(step) } : said;
      if (!performed) scene.refused(answer);
      if (step.delayMs) await wait(step.delayMs);
      reply(response, answer);
      return "json" in step ? answer : performed;
    }
    case "reset":
      socket?.resetAndDestroy();
      return performed;
    case "close":
      socket?.destroy();
      return performed;
    case "hang":
      return performed;
    case "cut": {
      const whole = performed ?? { status: 200, body: '{"half":"of an answer that never ends"}' };
      response.writeHead(step.status ?? whole.status, { "content-length": Buffer.byteLength(whole.body) });
      response.write(whole.body.slice(0, whole.body.length / 2), () => socket?.destroy());
      return performed;
    }
    default:
      throw new Error(`no play for ${step satisfies never}`);
  }
}

const jsonOf = (step: { json?: unknown; headers?: Readonly<Record<string, string>> }) => ({
  headers: { "content-type": "application/json; charset=utf-8", ...step.headers },
  body: JSON.stringify(step.json),
});

export function reply(response: ServerResponse, { status, headers = {}, body }: Reply): void {
  if (response.destroyed || response.headersSent) return;
  response.writeHead(status, { ...headers, "content-length": Buffer.byteLength(body) });
  response.end(body);
}
