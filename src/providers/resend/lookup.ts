import type { Millis, ReceiptStatus } from "../../ledger/delivery.ts";
import type { Finding, LookupClient, Sought } from "../provider.ts";
import { receipts } from "./receipts.ts";
import {
  type LogEntry,
  type LogPage,
  NoAnswer,
  openRecords,
  type RecordedEmail,
  type RecordsSettings,
} from "./records.ts";

/** Resend's clock and ours differ, and an entry is written some time after its request came. */
const SLACK_MS = 120_000;
const MOST_PAGES = 50;
const MOST_READ = 200;
/** After so long no entry is expected to be added any more among older ones. */
const STILL_AFTER_MS = 15 * 60_000;
const MOST_REMEMBERED = 10_000;
const MOST_PAGES_REMEMBERED = 200;
const OURS = "delivery-ledger";

/** An entry with what it was about. */
interface Read extends RecordedEmail {
  readonly entry: LogEntry;
}

/** An entry below which the log is read on. */
type Place = Pick<LogEntry, "id" | "at">;

/** What was read of the log, and why that is not all of it. */
interface Reading {
  readonly about: readonly Read[];
  readonly gaps: readonly string[];
}

/**
 * Asks Resend's request log which of our requests it recorded, and what it answered. The log cannot be filtered: it is read
 * backwards, and every `POST /emails` around the doubtful claims one by one, until one of them is the one. What was read is
 * remembered, so that the look-ups after an outage share their requests.
 */
export function openResendLookup(settings: RecordsSettings): LookupClient {
  const records = openRecords(settings);
  const now = settings.clock?.now ?? Date.now;
  const emails = new Map<string, RecordedEmail>();
  const pages = new Map<string, Place & { readonly page: LogPage }>();

  /** A page, from memory if it is an old one: below an old entry nothing changes. */
  async function pageAfter(place: Place | null, signal: AbortSignal): Promise<LogPage> {
    const known = place && pages.get(place.id);
    if (known) return known.page;
    const page = await records.page(place?.id ?? null, signal);
    if (place && page.hasMore && place.at < now() - STILL_AFTER_MS) {
      remember(pages, place.id, { ...place, page }, MOST_PAGES_REMEMBERED);
    }
    return page;
  }

  /** The lowest remembered place in the log that is above this time; null: its beginning. */
  function placeAbove(time: Millis): Place | null {
    const above = [...pages.values()].filter(({ at }) => at > time);
    return above.toSorted((a, b) => a.at - b.at)[0] ?? null;
  }

  async function entriesAround(spans: Sought["spans"], signal: AbortSignal) {
    const within = ({ at }: LogEntry) =>
      spans.some(({ from, until }) => at >= from - SLACK_MS && at <= until + SLACK_MS);
    const oldest = Math.min(...spans.map(({ from }) => from)) - SLACK_MS;
    const found: LogEntry[] = [];
    let after = placeAbove(Math.max(...spans.map(({ until }) => until)) + SLACK_MS);
    for (let turn = 1; ; turn += 1) {
      const { entries, hasMore } = await pageAfter(after, signal);
      found.push(...entries.filter((entry) => entry.isEmail && within(entry)));
      const last = entries.at(-1);
      if (!last || !hasMore || last.at < oldest || last.id === after?.id) return { found, gap: null };
      if (turn === MOST_PAGES) {
        return { found, gap: `${MOST_PAGES} pages of the log go back only to ${new Date(last.at).toISOString()}` };
      }
      after = last;
    }
  }

  /** What an entry was about, from memory if it was read before. Null: it cannot be read. */
  async function emailOf(entry: LogEntry, signal: AbortSignal): Promise<RecordedEmail | null> {
    const known = emails.get(entry.id);
    if (known) return known;
    const email = await records.email(entry.id, signal);
    if (email) remember(emails, entry.id, email, MOST_REMEMBERED);
    return email;
  }

  /** Reads the entries until one proves the acceptance, the likeliest first. */
  async function readAround({ deliveryId, spans }: Sought, signal: AbortSignal): Promise<Reading> {
    const { found, gap } = await entriesAround(spans, signal);
    const inOrder = found.toSorted(byLikelihood);
    const left = new Set(inOrder.filter(({ id }) => !emails.has(id)).slice(MOST_READ));
    const about: Read[] = [];
    let unreadable = 0;
    for (const entry of inOrder.filter((one) => !left.has(one))) {
      const email = await emailOf(entry, signal);
      if (email === null) unreadable += 1;
      if (email?.deliveryId !== deliveryId) continue;
      about.push({ ...email, entry });
      if (provesAcceptance({ ...email, entry })) break;
    }
    const gaps = [
      gap,
      left.size > 0 ? `${left.size} requests of that time were not read yet` : null,
      unreadable > 0 ? `${unreadable} requests of that time could not be read` : null,
    ];
    return { about, gaps: gaps.filter((text) => text !== null) };
  }

  async function accepted({ emailId, entry }: Read & { emailId: string }, signal: AbortSignal): Promise<Finding> {
    const found = { found: "accepted", providerMessageId: emailId, acceptedAt: entry.at, statusAt: null } as const;
    try {
      return { ...found, status: statusOf(await records.lastEvent(emailId, signal)) };
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      // The log is proof enough.
      return { ...found, status: null };
    }
  }

  return {
    async find(sought, signal) {
      if (sought.spans.length === 0) return { found: "nothing", note: "no request can have reached Resend" };
      try {
        const { about, gaps } = await readAround(sought, signal);
        const proof = about.find(provesAcceptance);
        return proof ? await accepted(proof, signal) : without(about, gaps);
      } catch (error) {
        if (error instanceof NoAnswer) return { found: "no_answer", note: error.message };
        throw error;
      }
    },
    close: () => records.close(),
  };
}

const isSuccess = ({ status }: LogEntry): boolean => status >= 200 && status < 300;
const provesAcceptance = (read: Read): read is Read & { emailId: string } =>
  isSuccess(read.entry) && read.emailId !== null;

/** Successes first, then those of a user agent like ours, then the newest. */
const byLikelihood = (a: LogEntry, b: LogEntry): number =>
  Number(isSuccess(b)) - Number(isSuccess(a)) ||
  Number(b.userAgent === OURS) - Number(a.userAgent === OURS) ||
  b.at - a.at;

/** What the log says when it proves nothing. */
function without(about: readonly Read[], gaps: readonly string[]): Finding {
  const listed = about.slice(0, 5).map(({ entry, code }) => {
    return `${[entry.status, code].filter((word) => word !== null).join(" ")} at ${new Date(entry.at).toISOString()}`;
  });
  const recorded = listed.length === 0 ? [] : [`recorded: ${listed.join(", ")}`];
  if (about.some(({ entry }) => isSuccess(entry))) {
    return { found: "no_answer", note: [...recorded, "a success without the email's id", ...gaps].join("; ") };
  }
  if (gaps.length > 0) return { found: "no_answer", note: [...recorded, ...gaps].join("; ") };
  if (about.length > 0) return { found: "not_accepted", note: [...recorded, "none was accepted"].join("; ") };
  return { found: "nothing", note: "no request of that time carries this delivery's id" };
}

function statusOf(lastEvent: string): ReceiptStatus | null {
  const type = `email.${lastEvent}`;
  const means = Object.hasOwn(receipts, type) ? receipts[type] : undefined;
  return means === undefined || means === "evidence" || means === "ignored" ? null : means;
}

/** Keeps at most so many: the oldest go first. */
function remember<T>(map: Map<string, T>, key: string, value: T, most: number): void {
  map.set(key, value);
  const [first] = map.keys();
  if (map.size > most && first !== undefined) map.delete(first);
}
