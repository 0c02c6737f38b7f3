/** A stream of pseudo-random numbers: the same seed gives the same numbers for ever (splitmix32). */
export class Random {
  #state: number;

  constructor(seed: number, stream: number) {
    this.#state = Math.imul(seed ^ Math.imul(stream + 1, 0x9e3779b1), 0x85ebca6b) >>> 0;
    for (let warm = 0; warm < 3; warm += 1) this.next();
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 0x1_0000_0000;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number from `from` to `to`, both included. */
  between(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)] as T;
  }

  /** One of the keys, as often as their weights say. */
  weighted<K extends string>(weights: Readonly<Record<K, number>>): K {
    const all = Object.entries(weights) as [K, number][];
    let left = this.next() * all.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of all) {
      left -= weight;
      if (left < 0) return key;
    }
    return (all.at(-1) as [K, number])[0];
  }
}
