import { createHash, randomBytes } from "node:crypto";
import { hashKey, type Principal, type Scope } from "../store/keys.ts";
import type { Db } from "../store/schema.ts";
import { beginSession, endSession, endSessionsOf, findSession } from "../store/sessions.ts";
import type { Identify } from "./auth.ts";
import { Problem } from "./problem.ts";

/** An operator who is signed in to the console. */
export interface Session {
  /** What the cookie holds. */
  readonly token: string;
  /** Who acts: the key's rights, under the operator's name. */
  readonly principal: Principal;
  /** The operator's own name: the assignee of what they take on. */
  readonly operator: string;
  /** Stands in every form: a page of another origin cannot know it. */
  readonly csrf: string;
}

export interface Sessions {
  /** Rejects with the problem `unauthorized` for a key that is not good, `forbidden` for one without the scopes needed. */
  signIn(key: string, operator: string, needed: readonly Scope[]): Promise<Session>;
  /** Null: it is over, was ended, or its key was revoked. `uses` false: a page that refreshes itself does not keep it alive. */
  find(token: string, uses: boolean): Promise<Session | null>;
  signOut(session: Pick<Session, "token">): Promise<void>;
  /** Ends every session that was signed in with the same key. */
  signOutEverywhere(session: Session): Promise<void>;
}

const TOKEN = /^[A-Za-z0-9_-]{43}$/;
const digest = (text: string): Buffer => createHash("sha256").update(text, "utf8").digest();

/** Sessions are rows, so that every replica knows them and any can end them. */
export function createSessions(db: Db, identify: Identify): Sessions {
  const session = (token: string, key: Principal, operator: string): Session => ({
    token,
    operator,
    csrf: digest(`csrf ${token}`).toString("base64url"),
    principal: { ...key, keyName: operator === key.keyName ? operator : `${operator} (key ${key.keyName})` },
  });
  return {
    async signIn(key, operator, needed) {
      const keyHash = hashKey(key);
      const principal = await identify(keyHash);
      if (!principal) throw new Problem("unauthorized", "this API key is not known, or was revoked");
      const lacking = needed.filter((scope) => !principal.scopes.includes(scope));
      if (lacking.length > 0) throw new Problem("forbidden", `this API key lacks ${lacking.join(" and ")}`);
      const token = randomBytes(32).toString("base64url");
      await beginSession(db, digest(token), { keyHash, operator });
      return session(token, principal, operator);
    },
    async find(token, uses) {
      const found = TOKEN.test(token) ? await findSession(db, digest(token), uses) : null;
      const principal = found && (await identify(found.keyHash));
      return found && principal ? session(token, principal, found.operator) : null;
    },
    signOut: ({ token }) => endSession(db, digest(token)),
    async signOutEverywhere({ token }) {
      const found = await findSession(db, digest(token), false);
      if (found) await endSessionsOf(db, found.keyHash);
    },
  };
}
