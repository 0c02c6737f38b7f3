import { z } from "zod";
import { list, opaque, text } from "../fields.ts";

const NO_CHAT = "must be a chat id (a whole number, as a number or as its text) or @channelusername";

/** Bot API: chat ids fit into 52 bits; JavaScript holds them exactly up to 2^53 − 1. */
const chatNumber = z
  .number(NO_CHAT)
  .refine(Number.isSafeInteger, "must be a whole number within ±(2^53 − 1)")
  .refine((value) => value !== 0, "must not be 0")
  .transform(String);
/** In one spelling only: without a plus, leading zeros, an exponent or spaces. User names have 5 to 32 characters. */
const chatText = z
  .string(NO_CHAT)
  .regex(/^(-?[1-9]\d{0,15}|@[A-Za-z][A-Za-z0-9_]{4,31})$/, { error: NO_CHAT, abort: true })
  .refine((value) => value.startsWith("@") || Number.isSafeInteger(Number(value)), "must be within ±(2^53 − 1)");

/** A chat id, as a number or as its decimal text, or `@channelusername`. Text after parsing. */
export const chat = z
  .union([chatText, chatNumber], { error: NO_CHAT })
  .meta({ description: "a chat id, or @channelusername" });

// Limits hold after entities parsing, which never makes a text longer: a text within them is refused by nobody, and one
// that only its markup makes too long is refused here, where its sender can be told.
const MAX_TEXT = 4_096;
const MAX_CAPTION = 1_024;

const file = z
  .string("must be an https URL or a file_id")
  .min(1, "must not be empty")
  .max(2_048)
  .regex(/^[\x21-\x7e]+$/, "must be an https URL or a file_id");
const flag = z.boolean("must be true or false");
const topic = z.int("must be a whole number").positive("must be positive");

const FORMS = ["text", "photo", "document"] as const;
type Form = (typeof FORMS)[number];

/** Fields that belong to some methods only: sendMessage, sendPhoto, sendDocument. */
const BELONGS: Readonly<Record<string, readonly Form[]>> = {
  entities: ["text"],
  link_preview_options: ["text"],
  caption: ["photo", "document"],
  caption_entities: ["photo", "document"],
  show_caption_above_media: ["photo"],
  has_spoiler: ["photo"],
  disable_content_type_detection: ["document"],
};

/** A message as posted: the Bot API's own names. Exactly one of `text`, `photo` and `document`. */
export const message = z
  .strictObject(
    {
      text: text(MAX_TEXT).min(1, "must not be empty").optional(),
      photo: file.optional(),
      document: file.optional(),
      caption: text(MAX_CAPTION).optional(),
      parse_mode: z.enum(["MarkdownV2", "HTML", "Markdown"], "must be MarkdownV2, HTML or Markdown").optional(),
      entities: list(50_000).optional(),
      caption_entities: list(50_000).optional(),
      link_preview_options: opaque(5_000).optional(),
      reply_parameters: opaque(10_000).optional(),
      reply_markup: opaque(50_000).optional(),
      message_thread_id: topic.optional(),
      direct_messages_topic_id: topic.optional(),
      disable_notification: flag.optional(),
      protect_content: flag.optional(),
      allow_paid_broadcast: flag.optional(),
      message_effect_id: text(64).optional(),
      business_connection_id: text(256).optional(),
      show_caption_above_media: flag.optional(),
      has_spoiler: flag.optional(),
      disable_content_type_detection: flag.optional(),
    },
    { error: (issue) => (issue.code === "invalid_type" ? "must be an object" : undefined) },
  )
  .superRefine((value, context) => {
    const forms = FORMS.filter((form) => value[form] !== undefined);
    const [form] = forms;
    if (form === undefined || forms.length > 1) {
      const path = form === undefined ? [] : [forms.at(-1) ?? ""];
      context.addIssue({ code: "custom", path, message: "must have exactly one of text, photo and document" });
      return;
    }
    for (const [field, belongs] of Object.entries(BELONGS)) {
      if (value[field as keyof typeof value] !== undefined && !belongs.includes(form)) {
        context.addIssue({ code: "custom", path: [field], message: `goes with ${belongs.join(" or ")} only` });
      }
    }
  })
  .meta({ id: "TelegramMessage", description: "exactly one of text, photo and document" });

export type TelegramMessage = z.infer<typeof message>;

export const METHODS = { text: "sendMessage", photo: "sendPhoto", document: "sendDocument" } as const;
export type Method = (typeof METHODS)[Form];

/** The method that sends it. */
export function methodOf(posted: TelegramMessage): Method {
  const form = FORMS.find((candidate) => posted[candidate] !== undefined);
  if (form === undefined) throw new TypeError("a message without text, photo and document");
  return METHODS[form];
}
