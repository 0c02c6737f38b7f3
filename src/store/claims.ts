import { sql, type Transaction } from "kysely";
import type { AttemptNumber, DeliveryId, Millis, ProducerId } from "../ledger/delivery.ts";
import { idempotencyKey } from "../ledger/next-step.ts";
import type { Pacing } from "../ledger/pacing.ts";
import { returnProbe, takeProbe } from "./breaker.ts";
import { isConnectionError } from "./database.ts";
import { type Decision, type Due, type DueBatch, lockDue } from "./due.ts";
import { openPacer, type Pacer } from "./pacing.ts";
import type { Db, Schema } from "./schema.ts";
import { type Aside, setAside } from "./set-aside.ts";

/** A committed claim: the right to call the provider once. */
export interface Claim {
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
  readonly number: AttemptNumber;
  /** Whose claim it is, of which batch. */
  readonly claimedBy: string;
  readonly generation: number;
  readonly idempotencyKey: string;
  /** The effective recipient. */
  readonly to: string;
  readonly message: unknown;
  /** The body frozen with an earlier attempt under this key: to be sent again byte for byte. */
  readonly frozenBody: string | null;
}

export interface ClaimRequest {
  readonly channel: string;
  /** At most this many. */
  readonly limit: number;
  /**
   * Who claims: of no other batch, ever. A batch whose commit is in doubt is given back by this name, perhaps late; by then its
   * worker may have claimed the same attempts anew.
   */
  readonly claimedBy: string;
  readonly leaseMs: number;
  /** Absent: the channel is not paced. */
  readonly pacing?: Pacing;
  /** What the batch before said of itself. */
  readonly crowded?: boolean;
}

export interface Claimed {
  readonly claims: readonly Claim[];
  /** More may be due already. */
  readonly more: boolean;
  /** Many that must wait stand before the others: the next batch should look at more. */
  readonly crowded: boolean;
  /** For so long the channel's rate allows no claim, by the database's clock; 0: it allows one. */
  readonly tokenInMs: number;
  /** When the next delivery is due, where that is known: waiting longer would break the pace. */
  readonly dueInMs: number | null;
}

/** The connection broke when these claims may have been committed: nothing may be called under them. */
export class ClaimInDoubtError extends Error {
  readonly claims: readonly Claim[];
  constructor(claims: readonly Claim[], cause: unknown) {
    super(`the commit of ${claims.length} claims is in doubt`, { cause });
    this.name = "ClaimInDoubtError";
    this.claims = claims;
  }
}

/**
 * One batch of claims, committed when this returns. `decide` judges each due delivery while it is locked. A channel with a
 * rate is locked first, then its deliveries, which are never waited for: nobody waits in a circle.
 */
export async function claimDue(
  db: Db,
  request: ClaimRequest,
  decide: (due: Due, now: Millis) => Decision,
): Promise<Claimed> {
  let written: readonly Claim[] = [];
  try {
    return await db.transaction().execute(async (tx) => {
      const { channel, pacing, crowded } = request;
      const pacer = pacing ? await openPacer(tx, { channel, pacing, crowded }) : null;
      const most = Math.min(request.limit, pacer?.callsLeft ?? request.limit);
      if (pacer && most === 0) return { claims: [], more: false, crowded: false, ...(await pacer.save(0)) };
      const limit = most + (pacer?.scanMore ?? 0);
      const batch = await lockOrProbe(tx, request, limit);
      await pacer?.look(batch.due);
      const { claims, asides, left } = judge(batch, most, pacer, request.claimedBy, decide);
      written = claims;
      if (claims.length > 0) await openAttempts(tx, request, claims);
      if (asides.length > 0) await setAside(tx, channel, asides);
      if (batch.probing && claims.length === 0) await returnProbe(tx, channel);
      const full = batch.due.length === batch.limit;
      const result = { claims, more: left || full, crowded: full && asides.length > claims.length };
      return { ...result, ...((await pacer?.save(claims.length)) ?? { tokenInMs: 0, dueInMs: null }) };
    });
  } catch (error) {
    if (written.length > 0 && isConnectionError(error)) throw new ClaimInDoubtError(written, error);
    throw error;
  }
}

/** What is due; of a channel whose breaker is open, one delivery for whoever wins the right to a probe. */
async function lockOrProbe(
  tx: Transaction<Schema>,
  { channel, leaseMs }: ClaimRequest,
  limit: number,
): Promise<DueBatch & { readonly probing: boolean; readonly limit: number }> {
  const batch = await lockDue(tx, { channel, limit, probing: false });
  if (!batch.wantsProbe || !(await takeProbe(tx, channel, leaseMs))) return { ...batch, probing: false, limit };
  return { ...(await lockDue(tx, { channel, limit: 1, probing: true })), probing: true, limit: 1 };
}

/** Each delivery in its turn. `left`: there were more that could be called than may be. */
function judge(
  { due, now }: DueBatch,
  most: number,
  pacer: Pacer | null,
  claimedBy: string,
  decide: (due: Due, now: Millis) => Decision,
) {
  const claims: Claim[] = [];
  const asides: Aside[] = [];
  let left = false;
  for (const delivery of due) {
    const recipientPacedUntil = pacer?.pacedUntil(delivery) ?? null;
    const decision = decide({ ...delivery, gate: { ...delivery.gate, recipientPacedUntil } }, now);
    if (decision.act === "claim" && claims.length === most) {
      left = true;
      continue;
    }
    if (decision.act === "claim" || (decision.act === "hold" && decision.reason === "rate_limited")) {
      pacer?.take(delivery);
    }
    if (decision.act === "claim") claims.push(claimFor(delivery, claimedBy, decision));
    else asides.push({ due: delivery, decision });
  }
  return { claims, asides, left };
}

function claimFor(due: Due, claimedBy: string, decision: { generation: number; repeats: boolean }): Claim {
  return {
    deliveryId: due.id,
    producerId: due.producerId,
    number: (due.attemptCount + 1) as AttemptNumber,
    claimedBy,
    generation: decision.generation,
    idempotencyKey: idempotencyKey(due.id, decision.generation),
    to: due.movedTo ?? due.recipient,
    message: due.request.message,
    frozenBody: decision.repeats ? due.frozenBody : null,
  };
}

/**
 * Opens the attempts. The partial unique index on unsettled attempts is the guarded claim: had anybody else an open
 * attempt on one of these deliveries, the whole batch would fail and nothing be called.
 */
async function openAttempts(tx: Transaction<Schema>, request: ClaimRequest, claims: readonly Claim[]): Promise<void> {
  const rows = claims.map((claim) => ({
    delivery_id: claim.deliveryId,
    producer_id: claim.producerId,
    number: claim.number,
    generation: claim.generation,
    idempotency_key: claim.idempotencyKey,
    recipient: claim.to,
  }));
  const { numAffectedRows } = await sql`
    with claim as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as claim (
        delivery_id uuid, producer_id uuid, number integer, generation integer, idempotency_key text, recipient text)
    ), claimed as (
      update deliveries d
      set state = 'claimed', next_attempt_at = null, hold_reason = null, attempt_count = claim.number
      from claim
      where d.id = claim.delivery_id and d.producer_id = claim.producer_id and d.state = 'pending'
      returning d.id, d.producer_id, d.ladder, d.recipient
    ), logged as (
      insert into events (type, delivery_id, producer_id, data)
      select 'delivery.claimed', claim.delivery_id, claim.producer_id, json_strip_nulls(json_build_object(
        'attempt', claim.number, 'idempotency_key', claim.idempotency_key, 'claimed_by', ${request.claimedBy}::text,
        'moved_to', case when claim.recipient <> claimed.recipient then claim.recipient end))
      from claim join claimed on claimed.id = claim.delivery_id
    )
    insert into attempts (delivery_id, producer_id, number, ladder, generation, idempotency_key, recipient,
      claimed_at, claimed_by, lease_expires_at)
    select claim.delivery_id, claim.producer_id, claim.number, claimed.ladder, claim.generation, claim.idempotency_key,
      claim.recipient, ledger_now(), ${request.claimedBy}::text,
      ledger_now() + ${request.leaseMs}::double precision * interval '1 millisecond'
    from claim join claimed on claimed.id = claim.delivery_id and claimed.producer_id = claim.producer_id`.execute(tx);
  if (numAffectedRows !== BigInt(claims.length)) {
    throw new Error(`claimed ${numAffectedRows} of ${claims.length} locked deliveries`);
  }
}

/** Freezes request bodies before the first call under their keys; committed when this returns. */
export async function freezeBodies(
  db: Db,
  bodies: readonly { readonly claim: Claim; readonly body: string }[],
): Promise<void> {
  const rows = bodies.map(({ claim, body }) => ({
    delivery_id: claim.deliveryId,
    producer_id: claim.producerId,
    generation: claim.generation,
    body,
  }));
  await sql`
    insert into request_bodies (delivery_id, producer_id, generation, body)
    select delivery_id, producer_id, generation, body
    from json_to_recordset(${JSON.stringify(rows)}::text::json)
      as frozen (delivery_id uuid, producer_id uuid, generation integer, body text)`.execute(db);
}
