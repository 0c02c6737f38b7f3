import { z } from "zod";
import { ON_UNKNOWN, type ProducerId } from "../ledger/delivery.ts";
import { DERIVED_NAME_MAX_LENGTH, nameFault, occurrenceName } from "../ledger/name.ts";
import { unstorablePath } from "../ledger/storable.ts";
import type { Adapter, Provider } from "../providers/provider.ts";
import type { Posted } from "../store/intake.ts";
import { faultsOf, reservedKeys } from "./faults.ts";
import { instantAhead } from "./instant.ts";
import { type Fault, invalid, Problem, type ProblemType, pointerOf, summary } from "./problem.ts";
import { quietHours } from "./quiet-hours.ts";

const MAX_METADATA = 16_384;

/** A delivery as posted, apart from what its provider says about `to` and `message`. */
export const deliveryRequest = z
  .strictObject({
    name: z
      .string()
      .optional()
      .meta({ description: "1–255 printable characters, unique per producer; or the header Idempotency-Key" }),
    occurrence: z
      .strictObject({ schedule: z.string(), due_at: instantAhead })
      .optional()
      .meta({ description: "stands in for the name: schedule@due_at/channel/to" }),
    channel: z.string(),
    to: z.unknown().meta({ description: "the recipient, in the provider's own form" }),
    message: z.unknown().meta({ description: "the message, in the provider's own form" }),
    deliver_at: instantAhead.optional(),
    expires_at: instantAhead.optional().meta({ description: "at this instant it has expired" }),
    on_unknown: z.enum(ON_UNKNOWN).optional(),
    quiet_hours: quietHours
      .nullable()
      .optional()
      .meta({ description: "when it is not sent; null: it may be sent at any time; absent: as its producer's are" }),
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

/** What is well-formed of a request; a field that is not is left out. */
type Request = Partial<z.infer<typeof deliveryRequest>>;

/** A posted value as a delivery to be taken in, or a problem that names every field that is wrong. */
export function readDelivery(value: unknown, context: RequestContext): Posted {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid([{ pointer: "", detail: "must be a JSON object" }]);
  }
  const posted = value as Readonly<Record<string, unknown>>;
  const { request, faults } = readFields(posted);
  const channel = request.channel === undefined ? null : context.channel(request.channel);
  if (request.channel !== undefined && !channel) faults.push(UNKNOWN_CHANNEL);
  const recipient = channel ? recipientOf(posted["to"], channel, faults) : "";
  if (channel) faults.push(...messageFaults(posted["message"], channel));
  faults.push(...timeFaults(request), ...metadataFaults(request.metadata && posted["metadata"]));
  if (!names(posted) && context.headerName === null) faults.push(NO_NAME);
  const name = nameOf(request, context.headerName, recipient, faults);
  if (faults.length > 0) throw new Problem(problemType(faults), summary(faults), { errors: faults });
  const { producerId } = context;
  return { producerId, name, recipient, ...meaning(request), metadata: posted["metadata"] ?? null, request: posted };
}

/** The fields by the ledger's own schema, each for itself, so that one that is wrong hides no fault of another. */
function readFields(posted: Readonly<Record<string, unknown>>): { request: Request; faults: Fault[] } {
  const parsed = deliveryRequest.safeParse(posted);
  const faults = parsed.success ? [] : faultsOf(parsed.error, []);
  for (const key of reservedKeys(posted)) if (!faults.some(({ pointer }) => pointer === key.pointer)) faults.push(key);
  return { request: parsed.success ? parsed.data : wellFormed(posted), faults };
}

const date = (text: string | undefined): Date | null => (text === undefined ? null : new Date(text));

const meaning = ({ channel = "", on_unknown = "attention", deliver_at, expires_at, occurrence, ...more }: Request) => ({
  channel,
  ...(more.quiet_hours !== undefined && { quietHours: more.quiet_hours }),
  onUnknown: on_unknown,
  deliverAt: date(deliver_at),
  expiresAt: date(expires_at),
  occurrence: occurrence ? { schedule: occurrence.schedule, dueAt: new Date(occurrence.due_at) } : null,
});

const UNKNOWN_CHANNEL: Fault = { pointer: "/channel", detail: "is not a channel of this ledger" };
const NO_NAME: Fault = {
  pointer: "/name",
  detail: "is required: a name of your own, in name, in the header Idempotency-Key, or by an occurrence",
};

const names = (posted: object): boolean => Object.hasOwn(posted, "name") || Object.hasOwn(posted, "occurrence");

function problemType(faults: readonly Fault[]): ProblemType {
  if (faults.includes(NO_NAME)) return "name-required";
  return faults.every((fault) => fault === UNKNOWN_CHANNEL) ? "unknown-channel" : "invalid-request";
}

function wellFormed(posted: Readonly<Record<string, unknown>>): Request {
  const fields = Object.entries(deliveryRequest.shape).flatMap(([field, schema]) => {
    const parsed = schema.safeParse(Object.hasOwn(posted, field) ? posted[field] : undefined);
    return parsed.success && parsed.data !== undefined ? [[field, parsed.data]] : [];
  });
  return Object.fromEntries(fields) as Request;
}

function recipientOf(to: unknown, { provider }: OpenChannel, faults: Fault[]): string {
  if (to === undefined) return "";
  const parsed = provider.recipient.safeParse(to);
  if (parsed.success) return parsed.data;
  faults.push(...faultsOf(parsed.error, ["to"]));
  return "";
}

function messageFaults(message: unknown, { provider, adapter }: OpenChannel): Fault[] {
  if (message === undefined) return [];
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
  if (!occurrence || request.channel === undefined) return "";
  const name = occurrenceName(occurrence.schedule, new Date(occurrence.due_at), request.channel, recipient);
  const fault = nameFault(name, DERIVED_NAME_MAX_LENGTH);
  if (fault !== null && recipient !== "") faults.push({ pointer: "/occurrence", detail: `makes a name that ${fault}` });
  return name;
}
