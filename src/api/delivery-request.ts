import { z } from "zod";
import { ON_UNKNOWN, type ProducerId } from "../ledger/delivery.ts";
import { DERIVED_NAME_MAX_LENGTH, nameFault, occurrenceName } from "../ledger/name.ts";
import { unstorablePath } from "../ledger/storable.ts";
import type { Adapter, Provider } from "../providers/provider.ts";
import type { Posted } from "../store/intake.ts";
import { type Fault, invalid, Problem, pointerOf } from "./problem.ts";

const MAX_METADATA = 16_384;
const HORIZON_MS = 400 * 24 * 3_600_000;

const instant = z.iso
  .datetime({ offset: true, error: "must be an RFC 3339 time with an offset, like 2026-08-30T06:00:00Z" })
  .refine((text) => !Number.isNaN(Date.parse(text)), "must be a time that exists")
  .refine((text) => Date.parse(text) < Date.now() + HORIZON_MS, "must be within the next 400 days");

/** A delivery as posted, apart from what its provider says about `to` and `message`. */
export const deliveryRequest = z
  .strictObject({
    name: z
      .string()
      .optional()
      .meta({ description: "1–255 printable characters, unique per producer; or the header Idempotency-Key" }),
    occurrence: z
      .strictObject({ schedule: z.string(), due_at: instant })
      .optional()
      .meta({ description: "stands in for the name: schedule@due_at/channel/to" }),
    channel: z.string(),
    to: z.unknown().meta({ description: "the recipient, in the provider's own form" }),
    message: z.unknown().meta({ description: "the message, in the provider's own form" }),
    deliver_at: instant.optional(),
    expires_at: instant.optional().meta({ description: "at this instant it has expired" }),
    on_unknown: z.enum(ON_UNKNOWN).optional(),
    metadata: z.record(z.string(), z.unknown()).optional().meta({ description: "yours; at most 16 KiB as JSON" }),
  })
  .meta({ id: "DeliveryRequest" });

/** A channel that deliveries can be posted to. */
export interface OpenChannel {
  readonly provider: Provider;
  /** Null: this process has no credentials for it; deliveries are accepted and held. */
  readonly adapter: Adapter | null;
}

export interface RequestContext {
  readonly producerId: ProducerId;
  /** The header Idempotency-Key. */
  readonly headerName: string | null;
  channel(id: string): OpenChannel | null;
}

type Request = z.infer<typeof deliveryRequest>;

/** A posted value as a delivery to be taken in, or a problem that names every field that is wrong. */
export function readDelivery(value: unknown, context: RequestContext): Posted {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid([{ pointer: "", detail: "must be a JSON object" }]);
  }
  const parsed = deliveryRequest.safeParse(value);
  const faults = [...(parsed.success ? [] : faultsOf(parsed.error, [])), ...reservedKeys(value)];
  if (!parsed.success || faults.length > 0) throw invalid(faults);
  const request = parsed.data;
  const posted = value as Readonly<Record<string, unknown>>;

  const channel = context.channel(request.channel);
  if (!channel) {
    const errors = [{ pointer: "/channel", detail: "is not a channel of this ledger" }];
    throw new Problem("unknown-channel", "there is no channel of that name", { errors });
  }
  const recipient = recipientOf(posted["to"], channel, faults);
  faults.push(
    ...messageFaults(posted["message"], channel),
    ...timeFaults(request),
    ...metadataFaults(posted["metadata"]),
  );
  const name = nameOf(request, context.headerName, recipient, faults);
  if (faults.length > 0) throw invalid(faults);
  return {
    producerId: context.producerId,
    name,
    channel: request.channel,
    recipient,
    onUnknown: request.on_unknown ?? "attention",
    metadata: posted["metadata"] ?? null,
    deliverAt: request.deliver_at === undefined ? null : new Date(request.deliver_at),
    expiresAt: request.expires_at === undefined ? null : new Date(request.expires_at),
    occurrence: request.occurrence
      ? { schedule: request.occurrence.schedule, dueAt: new Date(request.occurrence.due_at) }
      : null,
    request: posted,
  };
}

function recipientOf(to: unknown, { provider }: OpenChannel, faults: Fault[]): string {
  const parsed = provider.recipient.safeParse(to);
  if (parsed.success) return parsed.data;
  faults.push(...(to === undefined ? [{ pointer: "/to", detail: "is required" }] : faultsOf(parsed.error, ["to"])));
  return "";
}

function messageFaults(message: unknown, { provider, adapter }: OpenChannel): Fault[] {
  if (message === undefined) return [{ pointer: "/message", detail: "is required" }];
  const parsed = provider.message.safeParse(message);
  if (!parsed.success) return faultsOf(parsed.error, ["message"]);
  const lacking = adapter?.lacks(message);
  return lacking ? [{ pointer: pointerOf(["message", ...lacking.path]), detail: lacking.fault }] : [];
}

function timeFaults({ deliver_at, expires_at }: Request): Fault[] {
  if (deliver_at === undefined || expires_at === undefined) return [];
  return Date.parse(deliver_at) < Date.parse(expires_at)
    ? []
    : [{ pointer: "/expires_at", detail: "must be after deliver_at" }];
}

function metadataFaults(metadata: unknown): Fault[] {
  if (metadata === undefined) return [];
  const unstorable = unstorablePath(metadata);
  if (unstorable) return [{ pointer: pointerOf(["metadata", ...unstorable.path]), detail: unstorable.fault }];
  return Buffer.byteLength(JSON.stringify(metadata)) > MAX_METADATA
    ? [{ pointer: "/metadata", detail: `must have at most ${MAX_METADATA} bytes as JSON` }]
    : [];
}

/** The producer's own name; a header and a body must agree. An occurrence can stand in for it. */
function nameOf(request: Request, headerName: string | null, recipient: string, faults: Fault[]): string {
  if (request.name !== undefined && headerName !== null && request.name !== headerName) {
    faults.push({ pointer: "/name", detail: "differs from the header Idempotency-Key" });
  }
  const { occurrence } = request;
  const scheduleFault = occurrence ? nameFault(occurrence.schedule, 100) : null;
  if (scheduleFault !== null) faults.push({ pointer: "/occurrence/schedule", detail: scheduleFault });
  const own = request.name ?? headerName;
  if (own !== null && own !== undefined) {
    const fault = nameFault(own);
    if (fault !== null) faults.push({ pointer: "/name", detail: fault });
    return own;
  }
  if (!occurrence) {
    const detail = "give the delivery a name of your own, in name, in the header Idempotency-Key, or by an occurrence";
    throw new Problem("name-required", detail, { errors: [{ pointer: "/name", detail: "is required" }] });
  }
  const name = occurrenceName(occurrence.schedule, new Date(occurrence.due_at), request.channel, recipient);
  const fault = nameFault(name, DERIVED_NAME_MAX_LENGTH);
  if (fault !== null && recipient !== "") faults.push({ pointer: "/occurrence", detail: `makes a name that ${fault}` });
  return name;
}

/** zod's issues as faults: the path as a JSON Pointer, unknown fields each by their own. */
export function faultsOf(error: z.ZodError, base: readonly PropertyKey[]): Fault[] {
  return error.issues.flatMap((issue): Fault[] => {
    const path = [...base, ...issue.path];
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({ pointer: pointerOf([...path, key]), detail: "is not a field here" }));
    }
    if (issue.code === "invalid_union") {
      const closest = issue.errors.toSorted((a, b) => depth(b) - depth(a) || a.length - b.length)[0] ?? [];
      if (closest.length > 0) return faultsOf({ issues: closest } as unknown as z.ZodError, path);
    }
    const missing = issue.code === "invalid_type" && issue.input === undefined && issue.message.includes("undefined");
    return [
      { pointer: pointerOf(path), detail: missing ? "is required" : issue.message.replace(/^Invalid input: /, "") },
    ];
  });
}

const depth = (issues: readonly { path: readonly PropertyKey[] }[]): number =>
  Math.max(0, ...issues.map(({ path }) => path.length));

/** Own keys named `__proto__`, which schemas pass over: fields that nobody has, except in the caller's metadata. */
function reservedKeys(value: object, path: readonly PropertyKey[] = []): Fault[] {
  return Object.entries(value).flatMap(([key, member]): Fault[] => {
    const here = [...path, key];
    if (key === "__proto__") return [{ pointer: pointerOf(here), detail: "is not a field here" }];
    if (path.length === 0 && key === "metadata") return [];
    return typeof member === "object" && member !== null ? reservedKeys(member, here) : [];
  });
}
