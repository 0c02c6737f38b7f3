import { type RawBuilder, sql } from "kysely";

/** A list of ids as one text parameter: the driver then needs to know nothing about array types. */
export const uuidArray = (ids: readonly string[]): RawBuilder<string[]> => sql`${`{${ids.join(",")}}`}::text::uuid[]`;

/** A list of words (letters, digits, `:`, `_`, `-`), likewise. */
export const wordArray = (words: readonly string[]): RawBuilder<string[]> => {
  const odd = words.find((word) => !/^[\w:-]+$/.test(word));
  if (odd !== undefined) throw new Error(`not a word: ${odd}`);
  return sql`${`{${words.join(",")}}`}::text::text[]`;
};
