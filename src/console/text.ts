export const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** A piece of somebody else's text: shown as it is, or a character that must not act, by its name. */
export type Piece = { readonly text: string } | { readonly hidden: string };

/**
 * What a reader would not see, or what would change how the rest reads: controls, format characters (bidi overrides, zero-width
 * ones, tags), line separators, private use, lone surrogates. Unicode's general categories Cc, Cf, Zl, Zp, Co, Cs.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u;
/** Joins letters and emoji in honest text. */
const JOINER = "\u200d";
const LAYOUT = new Set(["\n", "\t"]);

/** Cuts text into what may be shown and what is named. At most `max` characters of it; a run of the same name is one piece. */
export function piecesOf(text: string, max: number): { readonly pieces: readonly Piece[]; readonly left: number } {
  const pieces: Piece[] = [];
  const shown: string[] = [];
  let count = 0;
  const flush = () => {
    if (shown.length > 0) pieces.push({ text: shown.splice(0).join("") });
  };
  for (const character of text) {
    count += 1;
    if (count > max) break;
    if (LAYOUT.has(character) || character === JOINER || !HIDDEN.test(character)) shown.push(character);
    else {
      flush();
      pieces.push({ hidden: nameOf(character) });
    }
  }
  flush();
  return { pieces, left: count > max ? [...text].length - max : 0 };
}

const nameOf = (character: string): string =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
] as const;

/** A duration in one unit: `7 min`. Seconds. What has passed is rounded down, what is to come to the nearest. */
export function duration(seconds: number, round: (units: number) => number = Math.floor): string {
  const whole = Math.max(0, Math.round(seconds));
  const [unit, size] = UNITS.find(([, length]) => whole >= length) ?? (["s", 1] as const);
  return `${round(whole / size)} ${unit}`;
}

/** `7 min ago`, `in 7 min`. */
export function relative(at: string, now: number): string {
  const seconds = (Date.parse(at) - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds < 0 ? `${duration(-seconds)} ago` : `in ${duration(seconds, Math.round)}`;
}

/** A count with its noun. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
