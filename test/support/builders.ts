import { createHash } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import { uuidv7 } from "uuidv7";
import type { DeliveryId, ProducerId } from "../../src/ledger/delivery.ts";
import { intake, type Posted } from "../../src/store/intake.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import type { Db } from "../../src/store/schema.ts";

let counter = 0;

/** A posted delivery with good defaults. */
export function posted(producerId: ProducerId, more: Partial<Posted> = {}): Posted {
  counter += 1;
  const name = more.name ?? `delivery-${counter}`;
  const to = more.recipient ?? "accept@sandbox";
  const channel = more.channel ?? "sandbox";
  return {
    producerId,
    name,
    channel,
    recipient: to,
    onUnknown: "attention",
    metadata: null,
    deliverAt: null,
    expiresAt: null,
    occurrence: null,
    request: { name, channel, to, message: { text: "hello" } },
    ...more,
  };
}

/** Takes deliveries in, as the API does; returns their ids in order. */
export async function take(db: Db, ...more: Partial<Posted>[]): Promise<DeliveryId[]> {
  const producerId = await ensureProducer(db, "shop");
  const taken = await intake(
    db,
    more.map((one) => posted(producerId, one)),
  );
  return taken.map(({ id }) => id as DeliveryId);
}

/** A channel's row, as a start would make it. */
export async function channel(db: Db, id: string, provider: string): Promise<void> {
  await db
    .insertInto("channels")
    .values({ id, provider })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Changes every channel's row, locked in the order in which settlements lock them: no circle of waits with a worker. */
export async function changeChannels(db: Db, assignments: RawBuilder<unknown>): Promise<void> {
  await sql`
    with held as (select id as held_id from channels order by id for update)
    update channels set ${assignments} from held where id = held_id`.execute(db);
}

/** A row by plain SQL, for tests that must not go through the store. */
export async function insertDelivery(db: Db, more: Record<string, unknown> = {}): Promise<DeliveryId> {
  const id = uuidv7() as DeliveryId;
  const producerId = await ensureProducer(db, "shop");
  const row = {
    id,
    producer_id: producerId,
    name: id,
    request_hash: createHash("sha256").update(id).digest(),
    channel: "sandbox",
    recipient: "accept@sandbox",
    on_unknown: "attention",
    next_attempt_at: new Date(),
    ...more,
  };
  await db
    .insertInto("deliveries")
    .values(row as never)
    .execute();
  return id;
}

export async function insertAttempt(db: Db, deliveryId: DeliveryId, more: Record<string, unknown> = {}): Promise<void> {
  const { producer_id } = await db
    .selectFrom("deliveries")
    .select("producer_id")
    .where("id", "=", deliveryId)
    .executeTakeFirstOrThrow();
  const row = {
    delivery_id: deliveryId,
    producer_id,
    number: 1,
    ladder: 1,
    generation: 1,
    idempotency_key: `${deliveryId}.1`,
    recipient: "accept@sandbox",
    claimed_by: "test",
    lease_expires_at: new Date(Date.now() + 60_000),
    ...more,
  };
  await db
    .insertInto("attempts")
    .values(row as never)
    .execute();
}

/** Lets time pass for a delivery: everything about it happened `ms` earlier. Triggers are off for this alone. */
export async function moveInTime(db: Db, deliveryId: DeliveryId, ms: number): Promise<void> {
  const earlier = sql`${ms}::double precision * interval '1 millisecond'`;
  await db.transaction().execute(async (tx) => {
    await sql`set local session_replication_role = replica`.execute(tx);
    await sql`
      update deliveries set next_attempt_at = next_attempt_at - ${earlier}, accepted_at = accepted_at - ${earlier},
        deliver_at = deliver_at - ${earlier}, expires_at = expires_at - ${earlier}
      where id = ${deliveryId}`.execute(tx);
    await sql`
      update attempts set claimed_at = claimed_at - ${earlier}, lease_expires_at = lease_expires_at - ${earlier},
        settled_at = settled_at - ${earlier} where delivery_id = ${deliveryId}`.execute(tx);
  });
}
