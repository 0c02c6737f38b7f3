import type { Capability } from "../ledger/capability.ts";
import type { Adapter, LookupClient, Provider } from "./provider.ts";
import { openResend, type ResendSettings } from "./resend/adapter.ts";
import { resend } from "./resend/index.ts";
import { openResendLookup } from "./resend/lookup.ts";
import { openSandbox, type SandboxSettings } from "./sandbox/adapter.ts";
import { sandbox } from "./sandbox/index.ts";
import { openTelegram, type TelegramSettings } from "./telegram/adapter.ts";
import { telegram } from "./telegram/index.ts";

/** Every provider that the ledger knows, by name. */
export const PROVIDERS: Readonly<Record<string, Provider>> = { resend, telegram, sandbox };

/** A provider's table. Throws for one that the ledger does not know. */
export function capabilityOf(name: string): Capability {
  const provider = PROVIDERS[name];
  if (!provider) throw new Error(`no provider ${name}`);
  return provider.capability;
}

/** An account at a provider, with its credentials. */
export type AdapterSettings =
  | ({ readonly provider: "resend" } & ResendSettings)
  | ({ readonly provider: "telegram" } & TelegramSettings)
  | ({ readonly provider: "sandbox" } & SandboxSettings);

export function openAdapter(settings: AdapterSettings): Adapter {
  switch (settings.provider) {
    case "resend":
      return openResend(settings);
    case "telegram":
      return openTelegram(settings);
    case "sandbox":
      return openSandbox(settings);
    default:
      throw new Error(`no adapter for ${settings satisfies never}`);
  }
}

/** Asks the account's provider what became of messages; null where that cannot be asked, or no key for it is configured. */
export function openLookup(settings: AdapterSettings): LookupClient | null {
  switch (settings.provider) {
    case "resend": {
      const { lookupApiKey: apiKey, baseUrl } = settings;
      return apiKey === undefined ? null : openResendLookup({ apiKey, ...(baseUrl !== undefined && { baseUrl }) });
    }
    case "telegram":
    case "sandbox":
      return null;
    default:
      throw new Error(`no look-ups for ${settings satisfies never}`);
  }
}
