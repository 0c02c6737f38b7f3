import type { Context } from "hono";
import type { ApiEnv } from "../api/env.ts";
import type { Session } from "../api/sessions.ts";
import type { Ask } from "./client.ts";

/** What an operator sent: a form's fields, or the parameters of an address. White space at the ends is left out. */
export interface Sent {
  /** Empty when there is none. */
  one(name: string): string;
  many(name: string): readonly string[];
}

export interface ConsoleEnv {
  Bindings: ApiEnv["Bindings"];
  Variables: ApiEnv["Variables"] & {
    session: Session;
    ask: Ask;
    sent: Sent;
  };
}

export type Page = Context<ConsoleEnv>;
export type Scope = Session["principal"]["scopes"][number];

export const may = (session: Session, scope: Scope): boolean => session.principal.scopes.includes(scope);
