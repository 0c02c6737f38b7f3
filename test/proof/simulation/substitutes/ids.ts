import { sim } from "../state.ts";

const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, "0").slice(-digits);

function uuid(version: number): string {
  const { ids, scheduler } = sim;
  const time = hex(Math.floor(scheduler.now), 12);
  const random = () => hex(Math.floor(ids.next() * 0x1000), 3);
  return `${time.slice(0, 8)}-${time.slice(8)}-${version}${random()}-8${random()}-${random()}${random()}${random()}${random()}`;
}

/** Stands in for the package uuidv7: ordered by the world's time, and the same for the same seed. */
export const uuidv7 = (): string => uuid(7);

/** Stands in for `randomUUID` of node:crypto. */
export const randomUUID = (): string => uuid(4);
