/** A number's digits without zeros at either end, and the power of ten of the last digit. */
function decimal(literal: string): { digits: string; exponent: number } {
  const [, whole = "", fraction = "", power = "0"] = /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(literal) ?? [];
  const all = whole + fraction;
  let start = 0;
  let end = all.length;
  // By hand: /0+$/ takes quadratic time on a long run of zeros with a digit behind it.
  while (start < end && all[start] === "0") start += 1;
  while (end > start && all[end - 1] === "0") end -= 1;
  const digits = all.slice(start, end);
  return { digits, exponent: digits === "" ? 0 : Number(power) - fraction.length + (all.length - end) };
}

/**
 * Does a double hold this JSON number? Its value must come back as it went in: 15 digits always do, more only sometimes,
 * and what grows to infinity or shrinks to zero does not.
 */
export function survivesDouble(literal: string): boolean {
  if (literal.length <= 15 && !/[eE]/.test(literal)) return true;
  const value = Number(literal);
  const written = decimal(literal);
  if (!Number.isFinite(value) || (value === 0 && written.digits !== "")) return false;
  const held = decimal(String(value));
  return written.digits === held.digits && written.exponent === held.exponent;
}
