/**
 * Elements that reach other hosts or lead elsewhere, which no content security policy stops: hints to look up and connect (link),
 * refresh (meta), what changes where addresses lead (base), pages in the page (a browser may connect before it refuses), and links
 * (while it is clicked).
 */
const REACHING = /<(link|meta|base|area|iframe|frame|object|embed|portal)(?=[\s/>])/gi;
const ANCHOR = /<(\/?)a(?=[\s/>])/gi;

/**
 * A message's HTML in which no such element can come to be: an element is made of its start tag alone (HTML standard, 13.2.5.8),
 * and none of these start tags is left, wherever a parser might see one. Everything else that a message may ask for is refused by the
 * frame's policy. Not parsed: that could be made to take any time and memory, and a parser's view may differ from the browser's.
 */
export const harmless = (html: string): string => html.replaceAll(REACHING, "<wbr x-$1").replaceAll(ANCHOR, "<$1u x-a");
