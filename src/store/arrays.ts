import { type RawBuilder, sql } from "kysely";

/**
 * A list of ids as one parameter, in PostgreSQL's own text form: the driver then needs to know nothing about array types.
 * The parameter has the array's type: a cast from text would be worked out anew for every row that it is compared with.
 */
export const uuidArray = (ids: readonly string[]): RawBuilder<string[]> => sql`${`{${ids.join(",")}}`}::uuid[]`;

/** A list of words (letters, digits, `:`, `_`, `-`), likewise. */
export const wordArray = (words: readonly string[]): RawBuilder<string[]> => {
  const odd = words.find((word) => !/^[\w:-]+$/.test(word));
  if (odd !== undefined) throw new Error(`not a word: ${odd}`);
  return sql`${`{${words.join(",")}}`}::text[]`;
};
