import type { Model, Result } from "./model.ts";
import type { Tx } from "./tables.ts";

/** A part of a statement's text that no other statement of the product has, and what that statement does. */
export type Statement = readonly [part: string, run: (model: Model, tx: Tx, parameters: readonly unknown[]) => Result];
