import { z } from "zod";
import { line, text } from "../fields.ts";

const MAX_RECIPIENTS = 50;
/** Bytes of all attachments after Base64 (Resend: 40 MB an email). */
const MAX_ATTACHMENTS = 40 * 1024 * 1024;

// An address as mail servers take it (RFC 5321), without the quoted local parts that nobody uses. No dot at an end.
const LOCAL = String.raw`(?!\.)[^\s@<>()[\]\\,;:"\p{Cc}]{0,63}[^\s@<>()[\]\\,;:"\p{Cc}.]`;
const LABEL = String.raw`[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?`;
const ADDRESS = new RegExp(`^${LOCAL}@${LABEL}(?:\\.${LABEL})*$`, "u");
// A display name without the characters that would end it or split the list (RFC 5322, section 3.4), or a quoted one.
const PLAIN_NAME = /^[^<>()[\]\\,;:@"]*$/u;
const QUOTED_NAME = /^"(?:[^"\\]|\\.)*"$/u;

/** A bare address: `ada@example.com`. */
export const address = line(320)
  .refine((value) => ADDRESS.test(value) && !value.includes(".."), "must be an address like ada@example.com")
  .meta({ description: "an address like ada@example.com" });

/** An address, or `Name <address>`; a name with commas, brackets, colons or quotes must be in quotes. */
export const mailbox = line(1_000).superRefine((value, context) => {
  const angled = /^(.*?)\s*<([^<>]*)>$/u.exec(value.trim());
  const bare = angled?.[2] ?? value;
  const name = angled?.[1]?.trim() ?? "";
  if (!ADDRESS.test(bare) || bare.includes("..")) {
    context.addIssue({ code: "custom", message: "must be an address, or Name <address>" });
  } else if (!PLAIN_NAME.test(name) && !QUOTED_NAME.test(name)) {
    context.addIssue({ code: "custom", message: 'must have its display name in quotes: "Doe, Ada" <ada@example.com>' });
  }
});

// A refinement, not .max: zod's union would hide it behind its own error.
const mailboxList = z
  .array(mailbox)
  .refine(({ length }) => length >= 1 && length <= MAX_RECIPIENTS, `must have 1 to ${MAX_RECIPIENTS} addresses`);
const mailboxes = z.union([mailbox, mailboxList], { error: "must be an address, or a list of addresses" });

const headers = z
  .record(z.string(), line(10_000))
  .refine((value) => Object.keys(value).length <= 100, "must have at most 100 headers")
  .superRefine((value, context) => {
    for (const name of Object.keys(value)) {
      // A token (RFC 9110, section 5.6.2): stricter than RFC 5322, and safe on every hop.
      if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}$/.test(name)) {
        context.addIssue({
          code: "custom",
          path: [name],
          message: "must be a header name: letters, digits and - without spaces or a colon",
        });
      }
    }
  });

const tagText = z.string("must be text").regex(/^[A-Za-z0-9_-]{1,256}$/, "must be 1 to 256 of A-Z, a-z, 0-9, _ and -");
const tag = z.strictObject({
  name: tagText.refine((name) => name !== "delivery_id", "delivery_id is the ledger's own tag"),
  value: tagText,
});

// One spelling for the same bytes: padded, and the bits that padding leaves over are zero (RFC 4648, section 3.5).
const CANONICAL_END = /(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)$/;

const isBase64 = (value: string): boolean =>
  value.length % 4 === 0 && CANONICAL_END.test(value.slice(-4)) && !/[^A-Za-z0-9+/]/.test(value.slice(0, -4));

const base64 = z
  .string("must be Base64 text")
  .min(1, { error: "must not be empty", abort: true })
  .refine(isBase64, "must be Base64 with padding, without line breaks or a data: prefix");
const attachment = z
  .strictObject({
    filename: line(255).min(1),
    content: base64.optional(),
    path: line(2_048)
      .refine((value) => URL.canParse(value) && new URL(value).protocol === "https:", "must be an https URL")
      .optional(),
    content_type: line(255).optional(),
    content_id: line(128).optional(),
  })
  .refine((value) => (value.content === undefined) !== (value.path === undefined), "must have either content or path");

const count = (value: string | readonly string[] | undefined): number =>
  value === undefined ? 0 : typeof value === "string" ? 1 : value.length;

/** An email as posted: the field names of Resend's API. */
export const message = z
  .strictObject({
    from: mailbox.optional(),
    subject: line(200_000).min(1, "must not be empty"),
    html: text(5_000_000).optional(),
    text: text(5_000_000).optional(),
    cc: mailboxes.optional(),
    bcc: mailboxes.optional(),
    reply_to: mailboxes.optional(),
    headers: headers.optional(),
    tags: z.array(tag).max(50).optional(),
    attachments: z.array(attachment).max(100).optional(),
  })
  .refine((value) => value.html !== undefined || value.text !== undefined, "must have html or text")
  .refine((value) => 1 + count(value.cc) + count(value.bcc) <= MAX_RECIPIENTS, {
    path: ["cc"],
    error: `must have at most ${MAX_RECIPIENTS} recipients with to and bcc`,
  })
  .refine(
    (value) =>
      (value.attachments ?? []).reduce((sum, { content }) => sum + (content?.length ?? 0), 0) <= MAX_ATTACHMENTS,
    { path: ["attachments"], error: "must have at most 40 MB together, after Base64" },
  )
  .meta({ id: "EmailMessage" });

export type EmailMessage = z.infer<typeof message>;
