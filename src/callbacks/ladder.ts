/** Seconds to the next try, after the first, the second, … failure. The same as Svix's, and Resend's own webhooks. */
const WAITS_S = [5, 300, 1_800, 7_200, 18_000, 36_000, 36_000] as const;
const LONGEST_WAIT_S = 86_400;

/** A callback that has failed for so long without any success is disabled. */
export const DISABLED_AFTER_DAYS = 5;

/**
 * Seconds until a message is posted again after its `attempts`-th try failed, not before the receiver's own `Retry-After`
 * (a day at most); null: it is given up.
 */
export function nextWaitS(attempts: number, retryAfterS: number | null): number | null {
  const wait = WAITS_S[attempts - 1];
  return wait === undefined ? null : Math.max(wait, Math.min(retryAfterS ?? 0, LONGEST_WAIT_S));
}
