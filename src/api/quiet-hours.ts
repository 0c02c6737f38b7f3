import { z } from "zod";
import { CLOCK_TIME, isTimeZone } from "../ledger/quiet-hours.ts";

const clockTime = z.string().regex(CLOCK_TIME, "must be a time of day, 00:00 to 23:59");

/** Quiet hours as posted, kept and answered. */
export const quietHours = z
  .strictObject({
    from: clockTime,
    to: clockTime.meta({ description: "exclusive; earlier than from: on the next day" }),
    time_zone: z
      .string()
      .max(64, "must have at most 64 characters")
      .refine(isTimeZone, "must be a time zone of the IANA database, like Europe/Berlin"),
  })
  .refine(({ from, to }) => from !== to, { path: ["to"], error: "must differ from from" })
  .meta({ id: "QuietHours", description: "every day, by the clock in the time zone: nothing is sent meanwhile" });
