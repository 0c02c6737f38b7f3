import { Agent, type Dispatcher } from "undici";
import type { Phase } from "../ledger/verdict.ts";

/** What became of one HTTP request. */
export interface Exchange {
  readonly phase: Phase;
  /** HTTP status, or null when no answer was seen. */
  readonly status: number | null;
  /** Lower-case names. Empty without an answer. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The whole body, or null when it was lost, cut off or too large. */
  readonly body: string | null;
  /** Why there is no answer or no body. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

export interface Question {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** For the whole call: connecting, writing, and reading the answer. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** The largest body of an answer that is read, in bytes. Default 1 MiB. */
  readonly largestAnswer?: number;
}

export interface HttpRequest extends Question {
  readonly body: string;
}

export interface Transport {
  /** POSTs once: no retries, no redirects. Never rejects. */
  post(request: HttpRequest): Promise<Exchange>;
  /** GETs once, likewise. */
  get(question: Question): Promise<Exchange>;
  close(): Promise<void>;
}

const LARGEST_ANSWER = 1_048_576;
// Servers close idle sockets after five seconds and more; a request written to a socket that is being closed is in doubt.
const KEEP_ALIVE_MS = 4_000;

/**
 * The one transport under all adapters: it tells whether a request can have left. `onRequestStart` is undici's signal that
 * the request head is about to be written to a connected (and, for https, secured) socket: client-h1.js calls it directly
 * before the write, and writes nothing when the request is aborted in it. Before that call the phase is `not_sent`; from it
 * on, `sent`. HTTP/2 is off, for its path through undici is another one.
 */
export function openTransport(redact: (text: string) => string): Transport {
  const agent = new Agent({
    allowH2: false,
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    // The whole call has one deadline, ours.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: 10_000 },
  });
  return {
    post: (request) =>
      new Promise((resolve) => new RoundTrip(request, redact, resolve).start(agent, "POST", request.body)),
    get: (question) => new Promise((resolve) => new RoundTrip(question, redact, resolve).start(agent, "GET", null)),
    close: () => agent.destroy(),
  };
}

/** One request under way: collects what is seen, and ends exactly once. */
class RoundTrip implements Dispatcher.DispatchHandler {
  readonly #request: Question;
  readonly #redact: (text: string) => string;
  readonly #resolve: (exchange: Exchange) => void;
  readonly #deadline: NodeJS.Timeout;
  readonly #onAbort = () => this.#giveUp("ABORTED", "the call was cut off by the ledger");
  #phase: Phase = "not_sent";
  #ended = false;
  #controller: Dispatcher.DispatchController | null = null;
  #status: number | null = null;
  #headers: Exchange["headers"] = {};
  #chunks: Buffer[] = [];
  #size = 0;

  constructor(request: Question, redact: (text: string) => string, resolve: (exchange: Exchange) => void) {
    this.#request = request;
    this.#redact = redact;
    this.#resolve = resolve;
    this.#deadline = setTimeout(
      () => this.#giveUp("TIMEOUT", `no complete answer within ${request.timeoutMs} ms`),
      request.timeoutMs,
    );
  }

  start(agent: Agent, method: "GET" | "POST", body: string | null): void {
    const { url, headers, signal } = this.#request;
    if (signal.aborted) {
      this.#onAbort();
      return;
    }
    signal.addEventListener("abort", this.#onAbort, { once: true });
    try {
      agent.dispatch({ origin: url.origin, path: url.pathname + url.search, method, headers, body }, this);
    } catch (error) {
      // Refused by undici itself (a header that cannot be written), before anything was queued.
      this.#fail(error);
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#ended) {
      controller.abort(new Error("given up before it was written"));
      return;
    }
    this.#phase = "sent";
    this.#controller = controller;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) return;
    this.#status = status;
    this.#headers = headers;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const largest = this.#request.largestAnswer ?? LARGEST_ANSWER;
    this.#size += chunk.length;
    if (this.#size > largest) this.#giveUp("BODY_TOO_LARGE", `the answer is larger than ${largest} bytes`);
    else this.#chunks.push(chunk);
  }

  onResponseEnd(): void {
    this.#end(Buffer.concat(this.#chunks).toString("utf8"), null);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error);
  }

  #giveUp(code: string, message: string): void {
    this.#end(null, { code, message });
    this.#controller?.abort(new Error(message));
  }

  #fail(error: unknown): void {
    const { code, message } = describe(error);
    this.#end(null, { code, message: this.#redact(message).slice(0, 500) });
  }

  #end(body: string | null, error: Exchange["error"]): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#deadline);
    this.#request.signal.removeEventListener("abort", this.#onAbort);
    this.#resolve({ phase: this.#phase, status: this.#status, headers: this.#headers, body, error });
  }
}

/** The innermost code and a text; a dual-stack refusal is an AggregateError with an empty message. */
function describe(error: unknown): { code: string; message: string } {
  if (!(error instanceof Error)) return { code: "UNKNOWN", message: String(error) };
  const inner = error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error;
  const { code } = inner as { code?: unknown };
  return { code: typeof code === "string" ? code : inner.name, message: inner.message || String(code) };
}

/** The first value of a header. */
export function header(exchange: Pick<Exchange, "headers">, name: string): string | null {
  const value = exchange.headers[name];
  return (Array.isArray(value) ? value[0] : value) ?? null;
}

export type ReadBody =
  | { readonly kind: "json"; readonly value: unknown }
  | { readonly kind: "page" | "text" | "none"; readonly value: null };

/** A body that is JSON, or what it is instead: an HTML page, other text, or nothing. */
export function readBody({ body }: Pick<Exchange, "body">): ReadBody {
  const text = body?.trim() ?? "";
  if (text === "") return { kind: "none", value: null };
  if (text.startsWith("<")) return { kind: "page", value: null };
  try {
    return { kind: "json", value: JSON.parse(text) };
  } catch {
    return { kind: "text", value: null };
  }
}

/** What became of a request that was never made: proof that nothing left. */
export const neverMade = (message: string): Exchange => ({
  phase: "not_sent",
  status: null,
  headers: {},
  body: null,
  error: { code: "NOT_MADE", message },
});

/** At most 500 characters, without the U+0000 and the lone surrogates that PostgreSQL cannot hold. */
export const storable = (text: string): string => text.slice(0, 500).toWellFormed().replaceAll("\0", "\ufffd");
