import type { Child } from "hono/jsx";
import type { Page } from "./env.ts";
import { piecesOf, relative } from "./text.ts";

const LINE = 200;

/** Somebody else's text: it cannot act, reorder the page, or hide. `max`: characters shown. */
export function Text({ value, max = LINE }: { value: string; max?: number }) {
  const { pieces, left } = piecesOf(value, max);
  return (
    <bdi>
      {pieces.map((piece) =>
        "text" in piece ? (
          piece.text
        ) : (
          <span class="hidden-character" title="a character that is not shown as it is">
            {piece.hidden}
          </span>
        ),
      )}
      {left > 0 && <span class="quiet">… ({left.toLocaleString("en")} characters more)</span>}
    </bdi>
  );
}

/** A time in UTC with its distance; the page's script puts it into the viewer's zone. */
export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="quiet">never</span>;
  return (
    <time datetime={at}>
      <span class="absolute">{at.slice(0, 19).replace("T", " ")} UTC</span>{" "}
      <span class="relative">({relative(at, Date.now())})</span>
    </time>
  );
}

/** A short word in a frame, coloured by what it means. */
export function Badge({ of, title }: { of: string; title?: string }) {
  return (
    <span class={`badge is-${of}`} title={title}>
      {of.replaceAll("_", " ")}
    </span>
  );
}

/** An identifier with a button that copies it (hidden where there is no script). */
export function Copied({ value, what }: { value: string; what: string }) {
  return (
    <span class="copied">
      <code>
        <Text value={value} />
      </code>
      <button type="button" class="copy needs-script" data-copy={value} aria-label={`copy ${what}`} hidden>
        copy
      </button>
    </span>
  );
}

export function Notice({ kind = "note", children }: { kind?: "note" | "error" | "done"; children: Child }) {
  return (
    <div class={`notice is-${kind}`} role={kind === "error" ? "alert" : "status"}>
      {children}
    </div>
  );
}

/** Named values, one a line. */
export function Facts({ rows }: { rows: readonly (readonly [name: string, value: Child])[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A link to the next page of a list, with the same filters. */
export function Pager({ path, query, cursor }: { path: string; query: Query; cursor: string | null }) {
  if (cursor === null && !query["cursor"]) return null;
  return (
    <nav class="pager" aria-label="pages">
      {query["cursor"] && <a href={address(path, { ...query, cursor: undefined })}>First page</a>}
      {cursor !== null && (
        <a href={address(path, { ...query, cursor })} rel="next">
          Next page
        </a>
      )}
    </nav>
  );
}

export type Query = Readonly<Record<string, string | undefined>>;

/** A path with the parameters that have a value. */
export function address(path: string, query: Query): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** Of what was sent, the parameters that the page knows. */
export function queryOf(page: Page, names: readonly string[]): Query {
  return Object.fromEntries(names.map((name) => [name, page.get("sent").one(name) || undefined]));
}

export function Field({
  label,
  name,
  value,
  list,
  ...more
}: {
  label: string;
  name: string;
  value?: string | undefined;
  list?: readonly string[];
  type?: string;
  placeholder?: string;
  inputmode?: "numeric";
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the one or the other of the branches
    <label>
      <span>{label}</span>
      {list ? (
        <select name={name}>
          <option value="">any</option>
          {(value && !list.includes(value) ? [value, ...list] : list).map((option) => (
            <option value={option} selected={option === value}>
              {option.replaceAll("_", " ")}
            </option>
          ))}
        </select>
      ) : (
        <input name={name} value={value ?? ""} {...more} />
      )}
    </label>
  );
}

/** A table that may be wider than the screen: it is scrolled by itself, with the keyboard as well. */
export function Wide({ label, children }: { label: string; children: Child }) {
  return (
    // What scrolls must be reachable by the keyboard (WCAG 2.1.1).
    <section class="wide" tabindex={0} aria-label={label}>
      {children}
    </section>
  );
}
