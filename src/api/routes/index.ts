import { attentionRoutes } from "./attention.ts";
import { channelRoutes } from "./channels.ts";
import { deliveryRoutes } from "./deliveries.ts";
import { healthRoutes } from "./health.ts";
import { keyRoutes } from "./keys.ts";
import { receiptRoutes } from "./receipts.ts";

/** Every endpoint, in the order of the contract. */
export const ROUTES = {
  ...deliveryRoutes,
  ...attentionRoutes,
  ...receiptRoutes,
  ...channelRoutes,
  ...keyRoutes,
  ...healthRoutes,
} as const;

export type OperationId = keyof typeof ROUTES;
