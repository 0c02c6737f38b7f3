import { z } from "zod";
import { quietHours } from "../quiet-hours.ts";
import { time } from "../schemas.ts";

export const producer = z
  .strictObject({
    id: z.uuid(),
    name: z.string(),
    quiet_hours: quietHours.nullable().meta({ description: "of its deliveries that name none" }),
    created_at: time,
  })
  .meta({ id: "Producer" });

export const producerPage = z
  .strictObject({ data: z.array(producer), next_cursor: z.string().nullable() })
  .meta({ id: "ProducerPage" });
