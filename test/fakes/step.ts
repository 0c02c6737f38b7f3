/**
 * What a fake does with one call. Plain JSON, so that another process can script it. Without a step a call is accepted.
 * `effect`: the message goes out (once a key, where the provider has keys) before the fault is played.
 */
export type Step =
  /** Send it, and say so; `delayMs` later. While it waits, its key is in use. */
  | { readonly do: "accept"; readonly delayMs?: number }
  /** Say this instead: `json` or `raw` (default: no body). */
  | {
      readonly do: "answer";
      readonly status: number;
      readonly json?: unknown;
      readonly raw?: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly effect?: boolean;
      readonly delayMs?: number;
    }
  /** Read the whole request, then reset the connection (RST). */
  | { readonly do: "reset"; readonly effect?: boolean }
  /** Read the whole request, then close the connection (FIN) without an answer. */
  | { readonly do: "close"; readonly effect?: boolean }
  /** Read the whole request and never answer. */
  | { readonly do: "hang"; readonly effect?: boolean }
  /** The head and half the body of the answer (with `status` instead of its own), then the connection closes. */
  | { readonly do: "cut"; readonly status?: number; readonly effect?: boolean };

/** What a fake does with a new connection, before a byte of it is read. */
export type ConnectionFault = "reset" | "close";

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string;
}

export const jsonReply = (status: number, value: unknown, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers: { "content-type": "application/json; charset=utf-8", ...headers },
  body: JSON.stringify(value),
});

/** A page as an edge or a proxy answers it. */
export const page = (status: number, headers: Readonly<Record<string, string>> = {}): Step => ({
  do: "answer",
  status,
  raw: `<html><head><title>${status}</title></head><body><center><h1>${status}</h1></center></body></html>`,
  headers: { "content-type": "text/html", server: "cloudflare", ...headers },
});
