/** Where in a JSON value there is text that cannot be stored, as a path; null when there is none. Depth was bounded at the door. */
export function unstorablePath(
  value: unknown,
  path: readonly PropertyKey[] = [],
): { path: PropertyKey[]; fault: string } | null {
  if (typeof value === "string") {
    if (value.includes("\0")) return { path: [...path], fault: "must not contain U+0000" };
    return value.isWellFormed() ? null : { path: [...path], fault: "must not contain a lone surrogate" };
  }
  if (typeof value !== "object" || value === null) return null;
  for (const [key, member] of Object.entries(value)) {
    if (key.includes("\0") || !key.isWellFormed()) {
      return { path: [...path], fault: "must not have a key with U+0000 or a lone surrogate" };
    }
    const found = unstorablePath(member, [...path, key]);
    if (found) return found;
  }
  return null;
}
