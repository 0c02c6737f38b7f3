import type { Owner, Scheduler } from "./scheduler.ts";

/** A simulated process: what it waits for happens while it is alive and not stopped. */
export class Process implements Owner {
  readonly name: string;
  alive = true;
  frozenUntil = 0;
  /** Its monotonic clock is so much behind the world's. */
  #behind: number;
  readonly #scheduler: Scheduler;
  readonly #atEnd: (() => void)[] = [];

  constructor(scheduler: Scheduler, name: string) {
    this.#scheduler = scheduler;
    this.name = name;
    this.#behind = scheduler.now;
  }

  get monotonic(): number {
    return this.#scheduler.now - this.#behind;
  }

  /** kill -9: no await of it ever returns. */
  kill(): void {
    if (!this.alive) return;
    this.alive = false;
    for (const end of this.#atEnd) end();
  }

  whenKilled(run: () => void): void {
    this.#atEnd.push(run);
  }

  /** SIGSTOP for so long; with its machine, its clock stands still. */
  freeze(ms: number, clockStands: boolean): void {
    this.frozenUntil = this.#scheduler.now + ms;
    if (clockStands) this.#behind += ms;
  }
}
