import { type DefaultTreeAdapterTypes, defaultTreeAdapter, parse, serialize } from "parse5";

/**
 * What a content security policy does not stop: elements that hint at other hosts (a browser looks them up, and connects), that
 * lead elsewhere by themselves, or that nest another page.
 */
const DROPPED = new Set(["link", "meta", "base", "script", "iframe", "frame", "frameset", "object", "embed", "portal"]);
/** Where a click would lead: told, not followed. */
const LEADS = new Set(["href", "xlink:href", "action", "formaction", "ping", "target"]);

/** A message's HTML without what reaches out. Parsed and written as a browser would (the HTML standard, by parse5). */
export function harmless(html: string): string {
  // As in the frame: where no script runs, what stands in a noscript element counts.
  const document = parse(html, { scriptingEnabled: false });
  const waiting: DefaultTreeAdapterTypes.ParentNode[] = [document];
  for (let parent = waiting.pop(); parent; parent = waiting.pop()) {
    for (const node of [...parent.childNodes]) {
      if (!defaultTreeAdapter.isElementNode(node)) continue;
      if (DROPPED.has(node.tagName)) defaultTreeAdapter.detachNode(node);
      else {
        node.attrs = withoutLeads(node);
        waiting.push(node);
        if (node.tagName === "template") waiting.push((node as DefaultTreeAdapterTypes.Template).content);
      }
    }
  }
  return serialize(document);
}

function withoutLeads({ tagName, attrs }: DefaultTreeAdapterTypes.Element): typeof attrs {
  const kept = attrs.filter(({ name, prefix }) => !LEADS.has(prefix ? `${prefix}:${name}` : name));
  const href = tagName === "a" ? attrs.find(({ name }) => name === "href") : undefined;
  if (!href) return kept;
  return [...kept.filter(({ name }) => name !== "title"), { name: "title", value: `leads to ${href.value}` }];
}
