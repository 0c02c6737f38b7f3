import type { Hono } from "hono";
import type { z } from "zod";
import type { ApiEnv } from "../api/env.ts";
import { Problem, type ProblemBody } from "../api/problem.ts";
import { type OperationId, ROUTES } from "../api/routes/index.ts";
import type { Route } from "../api/routes/route.ts";
import type { Session } from "../api/sessions.ts";

type Answers<Id extends OperationId> = (typeof ROUTES)[Id]["answers"];
/** What an operation answers when it goes well; undefined where it answers nothing. */
export type Answer<Id extends OperationId> = {
  [Status in keyof Answers<Id>]: Answers<Id>[Status] extends { readonly schema: infer Schema extends z.ZodType }
    ? z.output<Schema>
    : undefined;
}[keyof Answers<Id>];

export interface Given {
  readonly params?: Readonly<Record<string, string>>;
  /** Empty and absent values are left out. */
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
}

/** Asks the API, in this process, with the rights and under the name of the operator. Throws `Refused`. */
export type Ask = <Id extends OperationId>(id: Id, given?: Given) => Promise<Answer<Id>>;

/** The API's own refusal: the console adds no rule of its own, and hides none. */
export class Refused extends Error {
  readonly problem: ProblemBody;

  constructor(problem: ProblemBody) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** A refusal of what was sent, which is told beside the form; not one of who sent it, or of a service in trouble. */
export const isFault = (error: unknown): error is Refused =>
  error instanceof Refused && [400, 404, 409, 422].includes(error.problem.status);

/** The console is a client of the API like any other: the same scopes, rules and answers, without the network between. */
export function createClient(api: Hono<ApiEnv>): (session: Session) => Ask {
  return ({ principal }) =>
    async (id, given = {}) => {
      const { method, path } = ROUTES[id] as Route;
      const init = { method: method.toUpperCase() };
      const body = given.body === undefined ? {} : bodyOf(given.body);
      const request = new Request(addressOf(path, given), { ...init, ...body });
      const response = await api.fetch(request, { principal });
      const text = await response.text();
      const answer = text === "" ? undefined : JSON.parse(text);
      if (!response.ok) throw new Refused(answer as ProblemBody);
      return answer;
    };
}

const bodyOf = (body: unknown) => ({
  body: JSON.stringify(body),
  headers: { "content-type": "application/json" },
});

/** A value as one segment of a path. Empty ones and dots would lead to another operation. */
function segmentOf(value: string): string {
  if (/^\.{0,2}$/.test(value)) throw new Problem("not-found", `there is no “${value}”`);
  return encodeURIComponent(value);
}

function addressOf(path: string, { params = {}, query = {} }: Given): URL {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => segmentOf(params[name] ?? ""));
  const url = new URL(filled, "http://ledger.internal");
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return url;
}
