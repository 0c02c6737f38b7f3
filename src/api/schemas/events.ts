import { z } from "zod";
import { time } from "../schemas.ts";

export const event = z
  .strictObject({
    id: z.string().meta({ description: "the same whenever it is read" }),
    type: z.string(),
    at: time,
    delivery_id: z.uuid().nullable().meta({ description: "null: it concerns no one delivery" }),
    producer: z.string().optional().meta({ description: "whose it is; operators are told" }),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "Event" });

export const eventPage = z
  .strictObject({
    data: z.array(event),
    next_cursor: z.string().meta({ description: "after: for the next page, also when this one is empty" }),
    has_more: z.boolean().meta({ description: "true: ask again at once; false: everything was read" }),
  })
  .meta({ id: "EventPage" });
