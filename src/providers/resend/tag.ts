import type { DeliveryId } from "../../ledger/delivery.ts";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The members of a JSON object; of anything else, none. */
export const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};

/** Our own tag on an email. Resend's types have tags as an object, its documentation as a list of names and values. */
export function deliveryTag(tags: unknown): DeliveryId | null {
  const value = Array.isArray(tags)
    ? tags.map(fieldsOf).find(({ name }) => name === "delivery_id")?.["value"]
    : fieldsOf(tags)["delivery_id"];
  return typeof value === "string" && UUID.test(value) ? (value.toLowerCase() as DeliveryId) : null;
}
