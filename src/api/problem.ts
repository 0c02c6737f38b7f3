/** Every problem that the API answers (RFC 9457): title, status and what it means. The only place where they are named. */
export const PROBLEMS = {
  "invalid-json": {
    status: 400,
    title: "The body is not valid JSON",
    meaning: "Syntax, encoding, repeated keys, depth or numbers.",
  },
  "name-required": {
    status: 400,
    title: "A delivery needs a name",
    meaning: "Give name, Idempotency-Key or occurrence.",
  },
  "invalid-parameter": {
    status: 400,
    title: "A parameter is not valid",
    meaning: "In the query, the path or a header.",
  },
  "invalid-cursor": {
    status: 400,
    title: "The cursor is not valid here",
    meaning: "Cursors come from next_cursor of the same list.",
  },
  unauthorized: { status: 401, title: "A valid API key is needed", meaning: "Authorization: Bearer <api key>." },
  forbidden: { status: 403, title: "The API key may not do this", meaning: "It lacks the scope, or is an operator's." },
  "invalid-signature": {
    status: 401,
    title: "The webhook is not signed by the provider",
    meaning: "No signature, a wrong or old one, or the channel has no webhook secret.",
  },
  "not-found": { status: 404, title: "There is no such thing", meaning: "Or it is another producer's." },
  "method-not-allowed": { status: 405, title: "This method is not allowed here", meaning: "See the Allow header." },
  "already-claimed": {
    status: 409,
    title: "An attempt is under way",
    meaning: "Too late to cancel: a provider may be called right now.",
  },
  "already-settled": { status: 409, title: "The delivery has ended", meaning: "There is nothing left to cancel." },
  "in-doubt": {
    status: 409,
    title: "It may have been sent",
    meaning: "Cancelling would say that nothing was sent; nobody knows that.",
  },
  "already-resolved": {
    status: 409,
    title: "Somebody was first",
    meaning: "resolution says what was done, by whom and when.",
  },
  "not-possible": {
    status: 409,
    title: "The action is not possible now",
    meaning: "GET /v1/attention/{id} lists the ones that are.",
  },
  "count-mismatch": {
    status: 409,
    title: "The filter names another number of items",
    meaning: "Nothing was resolved; actual_count says how many there are.",
  },
  "body-too-large": { status: 413, title: "The body is too large", meaning: "The limit is MAX_BODY_BYTES." },
  "unsupported-media-type": {
    status: 415,
    title: "The body must be JSON",
    meaning: "application/json, UTF-8, not compressed.",
  },
  "invalid-request": {
    status: 422,
    title: "The request is not valid",
    meaning: "errors names each field and what is wrong with it.",
  },
  "duplicate-risk": {
    status: 422,
    title: "It may send a second message",
    meaning: "Give acknowledge_duplicate_risk: true if that is accepted.",
  },
  "name-reused": {
    status: 422,
    title: "The name belongs to another request",
    meaning: "errors lists the fields that differ.",
  },
  "unknown-channel": { status: 422, title: "There is no such channel", meaning: "GET /v1/channels lists them." },
  internal: { status: 500, title: "Something went wrong here", meaning: "It is in the log, under the instance." },
  unavailable: {
    status: 503,
    title: "The ledger cannot commit now",
    meaning: "Repeat the request later, under the same name.",
  },
} as const satisfies Record<string, { status: number; title: string; meaning: string }>;

export type ProblemType = keyof typeof PROBLEMS;

/** One fault of the input: where (a JSON Pointer, RFC 6901) and what. */
export interface Fault {
  readonly pointer: string;
  readonly detail: string;
}

/** The body of an `application/problem+json` answer. */
export interface ProblemBody {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly instance?: string;
  readonly errors?: readonly Fault[];
  /** Members of this type of problem alone (RFC 9457, section 3.2). */
  readonly [extension: string]: unknown;
}

/** Thrown by a handler to answer with a problem. */
export class Problem extends Error {
  readonly type: ProblemType;
  readonly errors: readonly Fault[] | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly extensions: Readonly<Record<string, unknown>>;

  constructor(
    type: ProblemType,
    detail: string,
    more: {
      errors?: readonly Fault[];
      headers?: Readonly<Record<string, string>>;
      extensions?: Readonly<Record<string, unknown>>;
    } = {},
  ) {
    super(detail);
    this.name = "Problem";
    this.type = type;
    this.errors = more.errors;
    this.headers = more.headers ?? {};
    this.extensions = more.extensions ?? {};
  }

  get status(): number {
    return PROBLEMS[this.type].status;
  }

  /** `instance` names this occurrence: the request's id. */
  body(instance?: string): ProblemBody {
    const { status, title } = PROBLEMS[this.type];
    return {
      type: `/problems/${this.type}`,
      title,
      status,
      detail: this.message,
      ...(instance !== undefined && { instance }),
      ...(this.errors !== undefined && { errors: this.errors }),
      ...this.extensions,
    };
  }
}

export const pointerOf = (path: readonly PropertyKey[]): string =>
  path.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

/** Faults in one sentence, for `detail`. */
export const summary = (faults: readonly Fault[]): string =>
  faults
    .map(({ pointer, detail }) => `${pointer || "the body"} ${detail}`)
    .join("; ")
    .slice(0, 2_000);

export const invalid = (errors: readonly Fault[]): Problem =>
  new Problem("invalid-request", summary(errors), { errors });
