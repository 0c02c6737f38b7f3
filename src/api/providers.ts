import { PROVIDERS } from "../providers/index.ts";
import type { Handler } from "./env.ts";

/** Even a ledger's memory for names is finite (RETENTION_NAMES_DAYS). */
const NAMES_REMEMBERED_DAYS = 400;

/** The same value with the keys of its objects in snake_case. */
function snakeKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [
      key.replaceAll(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`),
      snakeKeys(member),
    ]),
  );
}

/** The capability tables as they are in force: what the ledger may promise on each channel. */
export const getProviders: Handler = (context) =>
  context.json({
    names_remembered_days: NAMES_REMEMBERED_DAYS,
    data: Object.values(PROVIDERS).map(({ capability }) => snakeKeys(capability)),
    next_cursor: null,
  } as never);
