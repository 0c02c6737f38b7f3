import { Agent, request } from "undici";
import { saneRetryAfterS } from "../ledger/verdict.ts";
import { checkedLookup, isPublicAddress, literalAddress } from "./address.ts";

/** What became of one post. Success is a 2xx and nothing else. */
export interface PostResult {
  readonly ok: boolean;
  /** Null: no answer came. */
  readonly status: number | null;
  /** Why it failed, in words; null when it did not. */
  readonly error: string | null;
  readonly retryAfterS: number | null;
}

export interface Poster {
  /** POSTs once: no redirects, no retries. Never rejects. */
  post(url: string, headers: Readonly<Record<string, string>>, body: string): Promise<PostResult>;
  close(): Promise<void>;
}

const MAX_ANSWER_BYTES = 65_536;

/** Posts to URLs that others have chosen: to public addresses only, unless `allowPrivate`. */
export function openPoster({
  allowPrivate,
  timeoutMs = 15_000,
}: {
  allowPrivate: boolean;
  timeoutMs?: number;
}): Poster {
  const agent = new Agent({
    connect: { timeout: 5_000, ...(!allowPrivate && { lookup: checkedLookup }) },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    maxResponseSize: MAX_ANSWER_BYTES * 16,
  });
  return {
    async post(url, headers, body) {
      const address = literalAddress(new URL(url));
      if (!allowPrivate && address !== null && !isPublicAddress(address)) {
        return failed(`${address} is not a public address`);
      }
      try {
        const signal = AbortSignal.timeout(timeoutMs);
        const answer = await request(url, { method: "POST", headers, body, dispatcher: agent, signal });
        // What the receiver says does not matter; a little of it is read so that the connection can be used again.
        await answer.body.dump({ limit: MAX_ANSWER_BYTES, signal }).catch(() => {});
        const { statusCode: status } = answer;
        const ok = status >= 200 && status < 300;
        const retryAfter = answer.headers["retry-after"];
        return { ok, status, error: ok ? null : `answered ${status}`, retryAfterS: saneRetryAfterS(retryAfter) };
      } catch (error) {
        return failed(reasonOf(error, timeoutMs));
      }
    },
    close: () => agent.destroy(),
  };
}

const failed = (error: string): PostResult => ({ ok: false, status: null, error, retryAfterS: null });

function reasonOf(error: unknown, timeoutMs: number): string {
  if (!(error instanceof Error)) return "no answer";
  if (error.name === "TimeoutError") return `no answer within ${timeoutMs} ms`;
  const inner = error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error;
  return (inner.message || inner.name).slice(0, 300);
}
