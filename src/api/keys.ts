import { z } from "zod";
import { type ApiKey, createKey, listKeys, revokeKey } from "../store/keys.ts";
import type { ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { invalid, Problem } from "./problem.ts";
import * as schemas from "./schemas.ts";

const view = ({ createdAt, revokedAt, ...key }: ApiKey) => ({
  ...key,
  created_at: createdAt.toISOString(),
  revoked_at: revokedAt?.toISOString() ?? null,
});

export function keyHandlers(deps: ApiDeps) {
  const postKey: Handler = async (context) => {
    const parsed = schemas.keyRequest.safeParse(await readJsonBody(context, deps.maxBodyBytes));
    if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
    const { name, producer = null, scopes } = parsed.data;
    const { apiKey, key } = await createKey(deps.db, { name, producer, scopes });
    return context.json({ ...view(apiKey), key }, 201, { location: `/v1/keys/${apiKey.id}` });
  };

  const getKeys: Handler = async (context) =>
    context.json({ data: (await listKeys(deps.db)).map(view), next_cursor: null });

  const deleteKey: Handler = async (context) => {
    const id = context.req.param("id") ?? "";
    const revoked = z.uuid().safeParse(id).success && (await revokeKey(deps.db, id));
    if (!revoked) throw new Problem("not-found", "there is no such key, or it was revoked before");
    return context.body(null, 204);
  };

  return { postKey, getKeys, deleteKey };
}
