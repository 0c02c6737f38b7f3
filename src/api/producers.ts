import { z } from "zod";
import { findProducer, listProducers, type ProducerRow, setQuietHours } from "../store/producers.ts";
import { visibleTo } from "./auth.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { cursor, limit, readCursor, readQuery, writeCursor } from "./list.ts";
import { invalid, Problem } from "./problem.ts";
import { quietHours } from "./quiet-hours.ts";
import type { producer } from "./schemas/producers.ts";

export const producersQuery = z.strictObject({ limit, cursor });

const view = (row: ProducerRow): z.infer<typeof producer> => ({
  id: row.id,
  name: row.name,
  quiet_hours: row.quiet_hours,
  created_at: row.created_at.toISOString(),
});

export function producerHandlers(deps: ApiDeps) {
  const getProducers: Handler = async (context) => {
    const { limit: size, cursor: from } = readQuery(context, producersQuery);
    const after = from === undefined ? null : readCursor(from, "producers");
    const rows = await listProducers(deps.db, visibleTo(context), { after, limit: size + 1 });
    const page = rows.slice(0, size);
    const last = page.at(-1);
    const next_cursor = rows.length > size && last ? writeCursor("producers", last.id) : null;
    return context.json({ data: page.map(view), next_cursor });
  };

  const putQuietHours: Handler = async (context) => {
    const { id } = await find(context);
    const parsed = quietHours.safeParse(await readJsonBody(context, deps.maxBodyBytes));
    if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
    return context.json(view(await set(context, id, parsed.data)));
  };

  const deleteQuietHours: Handler = async (context) => {
    await set(context, (await find(context)).id, null);
    return context.body(null, 204);
  };

  async function find(context: ApiContext): Promise<ProducerRow> {
    const name = context.req.param("producer") ?? "";
    // No producer's name holds U+0000, and no statement takes it.
    const row = name.includes("\0") ? null : await findProducer(deps.db, name, visibleTo(context));
    if (!row) throw new Problem("not-found", "there is no such producer");
    return row;
  }

  async function set(context: ApiContext, id: ProducerRow["id"], hours: ProducerRow["quiet_hours"]) {
    const row = await setQuietHours(deps.db, id, hours, context.get("principal").keyName);
    deps.wake(deps.channels.keys());
    return row;
  }

  return { getProducers, putQuietHours, deleteQuietHours };
}
