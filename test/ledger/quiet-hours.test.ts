import { describe, expect, test } from "vitest";
import { isTimeZone, type QuietHours, quietUntil } from "../../src/ledger/quiet-hours.ts";

const hours = (from: string, to: string, time_zone = "Europe/Berlin"): QuietHours => ({ from, to, time_zone });
/** Until when, as UTC without seconds; null: it may be sent. */
function until(quiet: QuietHours, now: string): string | null {
  const end = quietUntil(quiet, Date.parse(now));
  return end === null ? null : new Date(end).toISOString().replace(":00.000Z", "Z");
}

describe("on an ordinary day", () => {
  test.each<[string, QuietHours, string, string | null]>([
    ["inside a window of one day", hours("12:00", "14:00"), "2026-06-10T11:00:00Z", "2026-06-10T12:00Z"],
    ["before it", hours("12:00", "14:00"), "2026-06-10T09:59:59.999Z", null],
    ["at its very beginning", hours("12:00", "14:00"), "2026-06-10T10:00:00Z", "2026-06-10T12:00Z"],
    ["at its very end", hours("12:00", "14:00"), "2026-06-10T12:00:00Z", null],
    ["over midnight, before it", hours("22:00", "07:00"), "2026-06-10T21:30:00Z", "2026-06-11T05:00Z"],
    ["over midnight, after it", hours("22:00", "07:00"), "2026-06-10T23:30:00Z", "2026-06-11T05:00Z"],
    ["over midnight, in the day", hours("22:00", "07:00"), "2026-06-10T12:00:00Z", null],
    ["until midnight itself", hours("20:00", "00:00"), "2026-06-10T21:00:00Z", "2026-06-10T22:00Z"],
    ["a zone of half hours", hours("21:30", "06:30", "Asia/Kolkata"), "2026-06-10T16:00:00Z", "2026-06-11T01:00Z"],
    [
      "a zone of three quarters",
      hours("22:00", "06:00", "Asia/Kathmandu"),
      "2026-06-10T16:15:00Z",
      "2026-06-11T00:15Z",
    ],
    ["a zone far ahead", hours("22:00", "07:00", "Pacific/Kiritimati"), "2026-06-10T08:00:00Z", "2026-06-10T17:00Z"],
    ["a zone far behind", hours("22:00", "07:00", "Pacific/Pago_Pago"), "2026-06-10T10:00:00Z", "2026-06-10T18:00Z"],
    ["UTC", hours("22:00", "07:00", "Etc/UTC"), "2026-06-10T23:00:00Z", "2026-06-11T07:00Z"],
  ])("%s", (_what, quiet, now, end) => {
    expect(until(quiet, now)).toBe(end);
  });
});

describe("when the clocks change", () => {
  // Berlin: 2026-03-29 01:00 UTC, 02:00 becomes 03:00; 2026-10-25 01:00 UTC, 03:00 becomes 02:00.
  test.each<[string, QuietHours, string, string | null]>([
    [
      "the night of the change to summer is an hour shorter",
      hours("22:00", "07:00"),
      "2026-03-28T23:00:00Z",
      "2026-03-29T05:00Z",
    ],
    [
      "the night of the change to winter an hour longer",
      hours("22:00", "07:00"),
      "2026-10-24T23:00:00Z",
      "2026-10-25T06:00Z",
    ],
    [
      "an end that the clock skips is the moment of the change",
      hours("22:00", "02:30"),
      "2026-03-29T00:30:00Z",
      "2026-03-29T01:00Z",
    ],
    ["… and at that moment it is over", hours("22:00", "02:30"), "2026-03-29T01:00:00Z", null],
    ["a beginning that the clock skips likewise", hours("02:30", "05:00"), "2026-03-29T01:00:00Z", "2026-03-29T03:00Z"],
    ["… and not before", hours("02:30", "05:00"), "2026-03-29T00:59:59Z", null],
    ["a window that the clock skips whole is empty", hours("02:10", "02:50"), "2026-03-29T01:00:00Z", null],
    ["an end that is shown twice is the first", hours("22:00", "02:30"), "2026-10-25T00:15:00Z", "2026-10-25T00:30Z"],
    ["… and the second time it is over", hours("22:00", "02:30"), "2026-10-25T01:15:00Z", null],
    [
      "a beginning that is shown twice is the first",
      hours("02:30", "05:00"),
      "2026-10-25T00:30:00Z",
      "2026-10-25T04:00Z",
    ],
    [
      "… and it stays quiet when the clock is put back before it",
      hours("02:30", "05:00"),
      "2026-10-25T01:10:00Z",
      "2026-10-25T04:00Z",
    ],
    [
      "a change by half an hour",
      hours("22:00", "02:15", "Australia/Lord_Howe"),
      "2026-10-03T15:00:00Z",
      "2026-10-03T15:30Z",
    ],
    ["a change at midnight", hours("21:00", "00:30", "Africa/Cairo"), "2026-04-23T21:00:00Z", "2026-04-23T22:00Z"],
    [
      "the end of a day that was left out is skipped with it",
      hours("22:00", "07:00", "Pacific/Apia"),
      "2011-12-30T09:30:00Z",
      "2011-12-30T10:00Z",
    ],
    [
      "… and there its next night goes on",
      hours("22:00", "07:00", "Pacific/Apia"),
      "2011-12-30T10:00:00Z",
      "2011-12-30T17:00Z",
    ],
  ])("%s", (_what, quiet, now, end) => {
    expect(until(quiet, now)).toBe(end);
  });

  test("through a whole year: whoever is told to wait may go then, and not a moment before", () => {
    for (const quiet of [
      hours("22:00", "07:00"),
      hours("01:30", "02:30"),
      hours("23:45", "23:15", "America/New_York"),
    ]) {
      for (let now = Date.UTC(2026, 0, 1, 0, 30); now < Date.UTC(2027, 0); now += 3 * 3_600_000) {
        const end = quietUntil(quiet, now);
        if (end === null) continue;
        expect(end).toBeGreaterThan(now);
        expect(end - now).toBeLessThanOrEqual(25 * 3_600_000);
        expect(quietUntil(quiet, end)).toBeNull();
        expect(quietUntil(quiet, end - 1)).toBe(end);
      }
    }
  });
});

describe("what cannot be read holds nobody", () => {
  test.each([
    hours("22:00", "07:00", "Mars/Phobos"),
    hours("22:00", "07:00", ""),
    hours("22:00", "07:00", "+02:00"),
    hours("25:00", "07:00"),
    hours("22:00", "7:00"),
    hours("22:00", "22:00"),
    {} as QuietHours,
    { from: 1, to: null, time_zone: {} } as unknown as QuietHours,
    [] as unknown as QuietHours,
  ])("%j", (quiet) => {
    expect(quietUntil(quiet, Date.parse("2026-06-10T23:00:00Z"))).toBeNull();
  });

  test("a time zone is a name that this machine knows, whatever its case", () => {
    expect(["Europe/Berlin", "europe/berlin", "UTC", "Asia/Kolkata"].every(isTimeZone)).toBe(true);
    expect(["Mars/Phobos", "+02:00", "", "Europe/Berlin\n"].some(isTimeZone)).toBe(false);
  });
});
