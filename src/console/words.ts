import type { Action } from "../ledger/delivery.ts";

/** The actions as an operator reads them, in the order in which they are offered. */
export const ACTIONS: readonly { readonly action: Action; readonly name: string; readonly key: string }[] = [
  { action: "mark_sent", name: "Mark as sent", key: "m" },
  { action: "resend_same_key", name: "Resend, same key", key: "s" },
  { action: "resend", name: "Resend, fresh key", key: "r" },
  { action: "abandon", name: "Abandon", key: "a" },
];

export const isAction = (text: unknown): text is Action => ACTIONS.some(({ action }) => action === text);
export const actionName = (action: string): string => ACTIONS.find((one) => one.action === action)?.name ?? action;

/** What is known of whether the request reached the provider. */
export const PHASES: Readonly<Record<string, string>> = {
  sent: "the request was written",
  not_sent: "the request was not written",
};

export const HOLDS: Readonly<Record<string, string>> = {
  scheduled: "its time has not come",
  ladder: "it waits for its next rung",
  channel_paused: "the channel is paused",
  channel_unconfigured: "the channel has no credentials",
  provider_down: "the provider fails for everybody: the breaker is open",
  quiet_hours: "its recipient is not to be disturbed now",
  rate_limited: "the provider's rate allows no call now",
};

/** The reasons that the queue can be filtered by, beside those that are in it. */
export const OPEN_AGES: readonly { readonly seconds: string; readonly name: string }[] = [
  { seconds: "600", name: "older than 10 min" },
  { seconds: "3600", name: "older than 1 h" },
  { seconds: "86400", name: "older than 1 d" },
];
