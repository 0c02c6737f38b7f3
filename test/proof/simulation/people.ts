import type { DeliveryId, ProducerId } from "../../../src/ledger/delivery.ts";
import { capabilityOf } from "../../../src/providers/index.ts";
import { cancelDelivery } from "../../../src/store/cancel.ts";
import { pauseChannel, resumeChannel } from "../../../src/store/channels.ts";
import { intake, type Posted } from "../../../src/store/intake.ts";
import { applyReceipts, type Receipt } from "../../../src/store/receipts.ts";
import { resolveItems } from "../../../src/store/resolutions.ts";
import type { Db } from "../../../src/store/schema.ts";
import type { Decision, Notice, Post } from "../checker/history.ts";
import type { PlannedDelivery } from "./plan.ts";
import type { Process } from "./process.ts";
import type { Made } from "./provider.ts";
import { PRODUCER, type World } from "./world.ts";

/** A request's end, as whoever sent it sees it: an answer, an error of the service's, or (null) nothing at all. */
type Answered<T> = { readonly value: T } | { readonly error: unknown } | null;

const answerOf = <T>(answered: Answered<T>): T | null => (answered && "value" in answered ? answered.value : null);

const PATIENCE_MS = 30_000;

/** The service's front: the replicas of the API. A request goes to one of them; when it dies, no answer comes. */
export class Front {
  readonly #world: World;
  readonly #replicas: { process: Process; db: Db }[];

  constructor(world: World) {
    this.#world = world;
    this.#replicas = [0, 1].map((index) => this.#start(index));
  }

  #start(index: number): { process: Process; db: Db } {
    const replica = this.#world.spawn(`api${index}`);
    replica.process.whenKilled(() => {
      this.#world.trace(`${replica.process.name} is dead`);
      this.#world.scheduler.after(this.#world.random.between(100, 5_000), null, () => {
        this.#replicas[index] = this.#start(index);
      });
    });
    return replica;
  }

  ask<T>(run: (db: Db) => Promise<T>, done: (answered: Answered<T>) => void): void {
    const { scheduler, random, faults } = this.#world;
    const { process, db } = random.pick(this.#replicas);
    let isDone = false;
    const finish = (answered: Answered<T>) => {
      if (isDone) return;
      isDone = true;
      timeout.run = null;
      scheduler.after(1, null, () => done(answered));
    };
    const timeout = scheduler.after(PATIENCE_MS, null, () => finish(null));
    if (!process.alive) return;
    scheduler.after(1, process, () => {
      const answer = (answered: Answered<T>) => finish(faults.strikes("lostAfter") ? null : answered);
      void run(db).then(
        (value) => answer({ value }),
        (error: unknown) => answer({ error }),
      );
    });
  }
}

/** Everybody outside: what they ask for, and what they are told. */
export class People {
  readonly posts: Post[] = [];
  readonly decisions: Decision[] = [];
  readonly notices: Notice[] = [];
  readonly #world: World;
  readonly #front: Front;
  readonly #wake: (channel: string) => void;

  constructor(world: World, front: Front, wake: (channel: string) => void) {
    this.#world = world;
    this.#front = front;
    this.#wake = wake;
    for (const delivery of world.plan.deliveries) this.#producer(delivery);
    if (world.plan.operatorMs !== null) this.#operator(world.plan.operatorMs);
    if (world.plan.pause) this.#pause(world.plan.pause);
    for (const provider of Object.values(world.providers)) provider.onMade = (made) => this.#webhooks(made);
  }

  #producer(planned: PlannedDelivery): void {
    const { scheduler, beginning } = this.#world;
    for (const at of planned.postedAt) {
      this.#world.outstanding += 1;
      scheduler.at(beginning + at, null, () => this.#post(planned));
    }
  }

  /** Posts it until it is answered for good. */
  #post(planned: PlannedDelivery): void {
    const { name, channel, to, contents, onUnknown } = planned;
    const posted = this.#request(planned);
    this.#front.ask(
      (db) => intake(db, [posted]),
      (answered) => {
        const taken = answerOf(answered)?.[0];
        const status = taken ? STATUS[taken.kind] : answered ? 503 : null;
        const common = { producerId: PRODUCER, name, channel, to, contents, onUnknown, request: posted.request };
        this.posts.push({ ...common, status, id: taken?.id ?? null });
        if (!taken) {
          this.#world.scheduler.after(this.#world.random.between(200, 5_000), null, () => this.#post(planned));
          return;
        }
        this.#world.trace(`${name} is ${taken.kind} as ${taken.id}`);
        this.#world.outstanding -= 1;
        if (taken.id !== null) this.#wake(channel);
        if (planned.cancelAfterMs !== null && taken.kind === "accepted") this.#cancel(taken.id, planned.cancelAfterMs);
      },
    );
  }

  #request({
    name,
    channel,
    to,
    contents,
    onUnknown,
    postedAt,
    deliverAfterMs,
    expiresAfterMs,
  }: PlannedDelivery): Posted {
    const first = this.#world.beginning + (postedAt[0] ?? 0);
    const after = (ms: number | null) => (ms === null ? null : new Date(first + ms));
    const deliverAt = after(deliverAfterMs);
    const expiresAt = after(expiresAfterMs);
    const request = {
      name,
      channel,
      to,
      message: { text: contents },
      deliver_at: deliverAt?.toISOString(),
      expires_at: expiresAt?.toISOString(),
    };
    return {
      producerId: PRODUCER as ProducerId,
      name,
      channel,
      recipient: to,
      onUnknown,
      metadata: null,
      deliverAt,
      expiresAt,
      occurrence: null,
      request: JSON.parse(JSON.stringify(request)) as Record<string, unknown>,
    };
  }

  #cancel(deliveryId: DeliveryId, afterMs: number): void {
    this.#world.outstanding += 1;
    this.#world.scheduler.after(afterMs, null, () => {
      this.#front.ask(
        (db) => cancelDelivery(db, deliveryId, PRODUCER as ProducerId, "the producer"),
        (answered) => {
          this.decisions.push({ kind: "cancel", deliveryId, done: answerOf(answered) });
          this.#world.outstanding -= 1;
        },
      );
    });
  }

  /** Looks at the queue now and then, and decides something about an item. */
  #operator(everyMs: number): void {
    const { scheduler, random, network, faults } = this.#world;
    scheduler.after(everyMs, null, () => {
      if (faults.isOver) return;
      this.#operator(everyMs);
      const open = [...network.server.model.items.rows(null)].filter((item) => item.closed_at === null);
      if (open.length === 0) return;
      const item = random.pick(open);
      const action = random.pick(["mark_sent", "resend", "resend_same_key", "abandon"] as const);
      const common = { itemId: item.id, action, note: "as I see it", by: "an operator", providerMessageId: null };
      this.#world.outstanding += 1;
      const place = this.decisions.push({ kind: "resolve", itemId: item.id, action, done: null }) - 1;
      this.#front.ask(
        (db) => resolveItems(db, [{ ...common, acknowledgesDuplicateRisk: true }], null, capabilityOf),
        (answered) => {
          const resolved = answerOf(answered)?.[0];
          this.#world.trace(`an operator: ${action} of ${item.id}: ${resolved?.kind ?? "no answer"}`);
          if (resolved)
            this.decisions[place] = { kind: "resolve", itemId: item.id, action, done: resolved.kind === "resolved" };
          this.#world.outstanding -= 1;
          if (resolved?.kind === "resolved") this.#wake(item.channel);
        },
      );
    });
  }

  /** The kill switch, and its end. */
  #pause({ channel, from, until }: { channel: string; from: number; until: number }): void {
    const { scheduler, beginning } = this.#world;
    this.#world.outstanding += 1;
    scheduler.at(beginning + from, null, () => {
      this.#front.ask(
        (db) => pauseChannel(db, channel, "an operator", "wait"),
        () => {},
      );
    });
    scheduler.at(beginning + until, null, () => {
      this.#world.outstanding -= 1;
      this.resume(channel);
    });
  }

  /** Until it is answered. */
  resume(channel: string): void {
    this.#world.outstanding += 1;
    this.#front.ask(
      (db) => resumeChannel(db, channel, "an operator", null),
      (answered) => {
        this.#world.outstanding -= 1;
        if (!answered || "error" in answered) this.#world.scheduler.after(1_000, null, () => this.resume(channel));
        else this.#wake(channel);
      },
    );
  }

  /** What an email's provider reports of it: in order and at once, or as the faults will. */
  #webhooks(made: Made): void {
    this.#world.trace(`the message ${made.messageId} of ${made.deliveryId} is made`);
    if (made.channel !== "email") return;
    const { faults, random, scheduler } = this.#world;
    const last = random.weighted({ delivered: 8, bounced: 1, delayed: 1 });
    const hasTag = !faults.strikes("webhook", 0.2);
    for (const [index, status] of ([null, last] as const).entries()) {
      if (faults.strikes("webhook", 0.5)) continue;
      const times = faults.strikes("webhook", 0.5) ? 2 : 1;
      const notice: Notice = {
        channel: made.channel,
        eventId: `${made.messageId}/${index}`,
        deliveryId: hasTag ? made.deliveryId : null,
        messageId: made.messageId,
        provesAcceptance: true,
        acknowledged: false,
      };
      const place = this.notices.push(notice) - 1;
      for (let time = 0; time < times; time += 1) {
        const late = faults.strikes("webhook") ? random.between(0, 400_000) : random.between(10, 2_000) * (index + 1);
        this.#world.outstanding += 1;
        scheduler.after(late, null, () => this.#tell(place, status, made.at));
      }
    }
  }

  /** As Svix does: again and again until it is answered 2xx. */
  #tell(place: number, status: Receipt["status"], at: number): void {
    const notice = this.notices[place] as Notice;
    const receipt: Receipt = {
      ...{ channel: notice.channel, eventId: notice.eventId, deliveryId: notice.deliveryId as DeliveryId | null },
      ...{
        providerMessageId: notice.messageId,
        name: null,
        producerId: null,
        type: `email.${status ?? "sent"}`,
        status,
      },
      ...{ provesAcceptance: true, occurredAt: Math.floor(at), suppresses: status === "bounced" ? "bounced" : null },
      ...{ recipients: null, detail: null },
    };
    this.#front.ask(
      (db) => applyReceipts(db, [receipt], capabilityOf),
      (answered) => {
        if (!answered || "error" in answered) {
          this.#world.scheduler.after(this.#world.random.between(1_000, 60_000), null, () =>
            this.#tell(place, status, at),
          );
          return;
        }
        this.notices[place] = { ...notice, acknowledged: true };
        this.#world.outstanding -= 1;
      },
    );
  }
}

const STATUS = { accepted: 202, known: 200, reused: 422, remembered: 200, too_late: 422 } as const;
