import type { Capability } from "../ledger/capability.ts";
import type { Millis } from "../ledger/delivery.ts";
import { type GateChannel, gate } from "../ledger/gate.ts";
import { chooseKey } from "../ledger/next-step.ts";
import type { Decision, Due } from "../store/due.ts";

/** The store hands out only what is due on a channel that may send. */
const OPEN_CHANNEL: GateChannel = { paused: null, configured: true, breakerOpenUntil: null, pacedUntil: null };

/**
 * Gate, then key: may this delivery be attempted now, and under which idempotency key? Pure. The key's window is looked at
 * here once more: a rung that was safe when it was planned may be reached too late.
 */
export function decideDue(due: Due, table: Capability, now: Millis): Decision {
  const decision = gate(due.gate, OPEN_CHANNEL, now);
  switch (decision.gate) {
    case "open": {
      const key = chooseKey(due.history, table, due.onUnknown, now, due.ladder);
      return "attention" in key ? { act: "attention", reason: key.attention } : { act: "claim", ...key };
    }
    case "hold":
      return { act: "hold", reason: decision.reason, until: decision.until };
    case "close":
      return { act: "close", state: decision.state };
    case "attention":
      return { act: "attention", reason: decision.reason };
    default:
      throw new Error(`no act for ${decision satisfies never}`);
  }
}

/** The sweeper's part of the gate: a delivery whose time has passed, whatever holds its channel. */
export function decideExpired(due: Due, now: Millis): Decision {
  const decision = gate(due.gate, OPEN_CHANNEL, now);
  if (decision.gate === "close") return { act: "close", state: decision.state };
  if (decision.gate === "attention") return { act: "attention", reason: decision.reason };
  throw new Error(`delivery ${due.id} was read as expired, but its gate says ${decision.gate}`);
}
