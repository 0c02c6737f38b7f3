import { z } from "zod";

const EARLIEST = Date.UTC(1970, 0);
/** How far ahead a delivery can be posted: as long as its name is remembered. */
export const HORIZON_DAYS = 400;

/** An RFC 3339 time with an offset, from 1970 to 9999: what JavaScript and PostgreSQL write alike. */
export const instant = z.iso
  .datetime({ offset: true, error: "must be an RFC 3339 time with an offset, like 2026-08-30T06:00:00Z", abort: true })
  .refine((text) => !Number.isNaN(Date.parse(text)), { error: "must be a time that exists", abort: true })
  .refine((text) => Date.parse(text) >= EARLIEST && Date.parse(text) < Date.UTC(10_000, 0), "must be in 1970 to 9999");

/** One within the ledger's horizon. */
export const instantAhead = instant.refine(
  (text) => Date.parse(text) < Date.now() + HORIZON_DAYS * 24 * 3_600_000,
  `must be within the next ${HORIZON_DAYS} days`,
);
