import { IANAZone } from "luxon";
import type { Millis } from "./delivery.ts";

/** When people are not to be disturbed, as it is posted, kept and answered: every day, by the clock on their wall. */
export interface QuietHours {
  /** `HH:MM`, 00:00 to 23:59. */
  readonly from: string;
  /** `HH:MM`; before `from` when the night lies between. Exclusive. */
  readonly to: string;
  /** An IANA time zone. */
  readonly time_zone: string;
}

export const CLOCK_TIME = /^([01]\d|2[0-3]):([0-5]\d)$/;

const DAY_MS = 24 * 3_600_000;

const NAME = /^[A-Za-z]/;

/** Does this machine know the time zone? Offsets (`+02:00`) are none: they know no summer. */
export const isTimeZone = (name: string): boolean => NAME.test(name) && IANAZone.isValidZone(name);

/**
 * Until when (epoch milliseconds) `now` lies in quiet hours; null when it does not. A day's quiet hours begin at the first
 * moment at which the clock shows `from`, and end at the first moment after that at which it shows `to`; a time that the
 * clock skips (the change to summer time) is reached when it is skipped. Null too when the hours or the zone are not
 * understood: a row that cannot be read must not stop the others.
 */
export function quietUntil(hours: QuietHours, now: Millis): Millis | null {
  const from = minutesOf(hours.from);
  const to = minutesOf(hours.to);
  const zone = zoneOf(hours.time_zone);
  if (from === null || to === null || from === to || !zone) return null;
  const today = Math.floor((now + offsetMs(zone, now)) / DAY_MS) * DAY_MS;
  for (const day of [today - DAY_MS, today]) {
    const begins = firstMoment(zone, day + from);
    const ends = firstMoment(zone, day + to + (to < from ? DAY_MS : 0));
    if (begins <= now && now < ends) return ends;
  }
  return null;
}

function minutesOf(text: unknown): number | null {
  const [, hours, minutes] = (typeof text === "string" && CLOCK_TIME.exec(text)) || [];
  return hours === undefined ? null : (Number(hours) * 60 + Number(minutes)) * 60_000;
}

/** Zones are remembered by luxon; so only names that a row holds may come here, for these were looked at at the door. */
function zoneOf(name: unknown): IANAZone | null {
  if (typeof name !== "string" || !NAME.test(name)) return null;
  const zone = IANAZone.create(name);
  return zone.isValid ? zone : null;
}

const offsetMs = (zone: IANAZone, at: Millis): number => zone.offset(at) * 60_000;

/** The first moment at which the clock in this zone shows a time (given as if it were UTC), or has skipped it. */
function firstMoment(zone: IANAZone, shown: number): Millis {
  const before = offsetMs(zone, shown - DAY_MS);
  const after = offsetMs(zone, shown + DAY_MS);
  const moments = [shown - before, shown - after].filter((at) => at + offsetMs(zone, at) === shown);
  // Shown twice when the clock is put back: the first time counts.
  if (moments.length > 0) return Math.min(...moments);
  return changeBetween(zone, shown - Math.max(before, after), shown - Math.min(before, after));
}

/** When the offset changes between two moments. */
function changeBetween(zone: IANAZone, earliest: Millis, latest: Millis): Millis {
  const before = offsetMs(zone, earliest);
  let low = earliest;
  let high = latest;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetMs(zone, middle) === before) low = middle;
    else high = middle;
  }
  return high;
}
