import { z } from "zod";
import { storable, time } from "../schemas.ts";

const reason = storable(500);

export const suppression = z
  .strictObject({
    channel: z.string(),
    recipient: z.string().meta({ description: "as it is compared: A to Z in lower case" }),
    reason: z.string(),
    created_by: z.string().meta({ description: "the name of the key, or ledger" }),
    created_at: time.meta({ description: "since when; a new reason does not change it" }),
  })
  .meta({ id: "Suppression" });

export const suppressionPage = z
  .strictObject({ data: z.array(suppression), next_cursor: z.string().nullable() })
  .meta({ id: "SuppressionPage" });

export const suppressionRequest = z.strictObject({ reason }).meta({ id: "SuppressionRequest" });
