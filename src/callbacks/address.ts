import { type LookupAddress, type LookupOptions, lookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";

/**
 * Can this address be anybody's on the Internet? Not loopback, private, link-local (where clouds keep their metadata), shared,
 * multicast, reserved, nor an IPv6 form of such an IPv4 address. IANA's special-purpose registries, by ipaddr.js.
 */
export function isPublicAddress(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === "unicast";
}

/** The address that a URL's host spells out, or null for a name. The URL parser has made `0x7f.1` and `[::ffff:7f00:1]` plain. */
export function literalAddress({ hostname }: URL): string | null {
  const bare = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  return isIP(bare) === 0 ? null : bare;
}

/** The name leads to an address that the ledger does not connect to. */
export class AddressRefusedError extends Error {
  readonly code = "ADDRESS_REFUSED";
  constructor(hostname: string) {
    super(`${hostname} has an address that is not public`);
    this.name = "AddressRefusedError";
  }
}

/**
 * Resolves a name for a connection, and refuses it when any of its addresses is not public. The connection is made to the
 * very addresses that were checked: a name that resolves to another one a moment later changes nothing.
 */
export const checkedLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...(options as LookupOptions), all: true }, (error, found) => {
    const addresses = found as LookupAddress[] | undefined;
    const first = addresses?.[0];
    if (error || !addresses || !first) callback(error ?? new Error(`${hostname} has no address`), "", 4);
    else if (!addresses.every(({ address }) => isPublicAddress(address))) {
      callback(new AddressRefusedError(hostname), "", 4);
    } else if ((options as LookupOptions).all) callback(null, addresses as never, first.family);
    else callback(null, first.address, first.family);
  });
};
