import { timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import type { ProducerId } from "../ledger/delivery.ts";
import { findPrincipals, hashKey, type Principal, SCOPES, type Scope } from "../store/keys.ts";
import type { Db } from "../store/schema.ts";
import type { AdminKey, ApiContext, ApiEnv } from "./env.ts";
import { groupRequests } from "./patience.ts";
import { Problem } from "./problem.ts";

/** The principal behind an Authorization header. Rejects with a problem. */
export type Authenticate = (authorization: string | undefined) => Promise<Principal>;

/**
 * Who is calling? `Authorization: Bearer <api key>`. Looked up for every request, so that a revoked key is refused at once;
 * concurrent requests share a statement.
 */
export function createAuthenticate(db: Db, admin: AdminKey | null): Authenticate {
  const adminHash = admin && hashKey(admin.key);
  const find = groupRequests((hashes: readonly Buffer[]) => findPrincipals(db, hashes));

  return async (authorization) => {
    const key = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(authorization ?? "")?.[1];
    if (key === undefined) throw unauthorized("give an API key as Authorization: Bearer <api key>");
    const hash = hashKey(key);
    if (admin && adminHash && timingSafeEqual(hash, adminHash)) {
      const { producerId } = admin;
      return { keyId: "admin", keyName: "admin", producerId, producer: "admin", seesAll: true, scopes: SCOPES };
    }
    const principal = await find(hash);
    if (!principal) throw unauthorized("this API key is not known, or was revoked");
    return principal;
  };
}

const unauthorized = (detail: string): Problem =>
  new Problem("unauthorized", detail, { headers: { "www-authenticate": 'Bearer realm="delivery-ledger"' } });

/** `scope` null: any valid key. */
export function requireScope(authenticate: Authenticate, scope: Scope | null): MiddlewareHandler<ApiEnv> {
  return async (context, next) => {
    const principal = await authenticate(context.req.header("authorization"));
    if (scope !== null && !principal.scopes.includes(scope)) {
      throw new Problem("forbidden", `this API key lacks the scope ${scope}`);
    }
    context.set("principal", principal);
    await next();
  };
}

/** Whose things the key sees; null: everybody's. */
export function visibleTo(context: ApiContext): ProducerId | null {
  const { seesAll, producerId } = context.get("principal");
  return seesAll ? null : producerId;
}
