import { attentionRoutes } from "./attention.ts";
import { callbackRoutes } from "./callbacks.ts";
import { channelRoutes } from "./channels.ts";
import { deliveryRoutes } from "./deliveries.ts";
import { eventRoutes } from "./events.ts";
import { healthRoutes } from "./health.ts";
import { keyRoutes } from "./keys.ts";
import { producerRoutes } from "./producers.ts";
import { receiptRoutes } from "./receipts.ts";
import { suppressionRoutes } from "./suppressions.ts";

/** Every endpoint, in the order of the contract. */
export const ROUTES = {
  ...deliveryRoutes,
  ...attentionRoutes,
  ...receiptRoutes,
  ...suppressionRoutes,
  ...eventRoutes,
  ...callbackRoutes,
  ...channelRoutes,
  ...producerRoutes,
  ...keyRoutes,
  ...healthRoutes,
} as const;

export type OperationId = keyof typeof ROUTES;
