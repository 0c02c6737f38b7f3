import type { Capability } from "../../ledger/capability.ts";

/** Events about contacts, domains and mailboxes say nothing about a delivery. */
const OTHER_EVENTS = [
  "email.received",
  "contact.created",
  "contact.updated",
  "contact.deleted",
  "contact.topics.updated",
  "domain.created",
  "domain.updated",
  "domain.deleted",
  "suppression.added",
  "suppression.removed",
  "topic.created",
  "topic.updated",
  "topic.deleted",
  "inbox.created",
  "inbox.updated",
  "inbox.deleted",
  "inbox.thread.created",
  "inbox.thread.folder.updated",
  "inbox.thread.assigned",
  "inbox.thread.unassigned",
  "inbox.thread.labels.updated",
  "inbox.email.received",
  "inbox.email.sent",
  "inbox.draft.created",
  "inbox.draft.updated",
  "inbox.draft.sent",
  "inbox.draft.deleted",
] as const;

/** resend 6.38, type WebhookEvent. `sent` and `scheduled` prove the acceptance, and say nothing about the arrival. */
export const receipts: Capability["receipts"] = {
  "email.sent": "evidence",
  "email.scheduled": "evidence",
  "email.delivered": "delivered",
  "email.delivery_delayed": "delayed",
  "email.bounced": "bounced",
  "email.complained": "complained",
  "email.failed": "failed",
  "email.suppressed": "suppressed",
  "email.opened": "opened",
  "email.clicked": "clicked",
  ...Object.fromEntries(OTHER_EVENTS.map((event) => [event, "ignored" as const])),
};
