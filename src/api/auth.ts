import { timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import type { ProducerId } from "../ledger/delivery.ts";
import { findPrincipals, hashKey, type Principal, SCOPES, type Scope } from "../store/keys.ts";
import type { Db } from "../store/schema.ts";
import type { AdminKey, ApiContext, ApiEnv } from "./env.ts";
import { groupRequests } from "./patience.ts";
import { Problem } from "./problem.ts";

/** The principal of the key with this hash; null for unknown and revoked ones. */
export type Identify = (keyHash: Buffer) => Promise<Principal | null>;

/**
 * Whose key is this? Looked up for every request, so that a revoked key is refused at once; concurrent requests share a
 * statement.
 */
export function createIdentify(db: Db, admin: AdminKey | null): Identify {
  const adminHash = admin && hashKey(admin.key);
  const find = groupRequests((hashes: readonly Buffer[]) => findPrincipals(db, hashes));

  return async (hash) => {
    if (admin && adminHash && timingSafeEqual(hash, adminHash)) {
      const { producerId } = admin;
      return { keyId: "admin", keyName: "admin", producerId, producer: "admin", seesAll: true, scopes: SCOPES };
    }
    return await find(hash);
  };
}

/** Who is calling? `Authorization: Bearer <api key>`. Rejects with a problem. */
async function authenticate(identify: Identify, authorization: string | undefined): Promise<Principal> {
  const key = /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(authorization ?? "")?.[1];
  if (key === undefined) throw unauthorized("give an API key as Authorization: Bearer <api key>");
  const principal = await identify(hashKey(key));
  if (!principal) throw unauthorized("this API key is not known, or was revoked");
  return principal;
}

const unauthorized = (detail: string): Problem =>
  new Problem("unauthorized", detail, { headers: { "www-authenticate": 'Bearer realm="delivery-ledger"' } });

/** `scope` null: any valid key. A caller within this process (the console) brings its principal along. */
export function requireScope(identify: Identify, scope: Scope | null): MiddlewareHandler<ApiEnv> {
  return async (context, next) => {
    const principal = context.env?.principal ?? (await authenticate(identify, context.req.header("authorization")));
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
