/** Whoever an event belongs to: a simulated process. What belongs to a dead one never happens. */
export interface Owner {
  alive: boolean;
  /** It is stopped until then: what would wake it waits. */
  frozenUntil: number;
}

export interface Event {
  time: number;
  readonly order: number;
  readonly owner: Owner | null;
  /** Null: cancelled. */
  run: (() => unknown) | null;
}

/** Node runs a tick when no promise has anything left to do. Now and then the real event loop has its turn, too. */
const settle = (resolve: () => void, turn: number): void => {
  if (turn % 1_000 === 0) turnOfTheLoop(resolve);
  else process.nextTick(resolve);
};
const turnOfTheLoop = globalThis.setImmediate;

/**
 * Simulated time. Events happen one after the other, by their time; what the code under test does because of one is done
 * to its end (its next await) before the next event. Nothing waits for real time, and one seed gives one order.
 */
export class Scheduler {
  /** Milliseconds, by the world's clock. */
  now: number;
  /** Whose event is happening. */
  current: Owner | null = null;
  /** Asked before each event of a process; false: it does not happen. */
  beforeEvent: (owner: Owner) => boolean = () => true;
  events = 0;
  #order = 0;
  readonly #heap: Event[] = [];

  constructor(now: number) {
    this.now = now;
  }

  at(time: number, owner: Owner | null, run: () => unknown): Event {
    this.#order += 1;
    const event = { time: Math.max(time, this.now), order: this.#order, owner, run };
    this.#push(event);
    return event;
  }

  after(ms: number, owner: Owner | null, run: () => unknown): Event {
    return this.at(this.now + ms, owner, run);
  }

  /** Until `isOver`, or nothing is left, or the time is `end`. Rejects with what an event throws. */
  async run(end: number, isOver: () => boolean): Promise<void> {
    for (let event = this.#pop(); event; event = this.#pop()) {
      const { owner, run } = event;
      if (run === null || (owner && !owner.alive)) continue;
      if (owner && owner.frozenUntil > event.time) {
        event.time = owner.frozenUntil;
        this.#push(event);
        continue;
      }
      if (event.time > end) {
        this.#push(event);
        return;
      }
      this.now = event.time;
      this.events += 1;
      if (owner && !this.beforeEvent(owner)) continue;
      this.current = owner;
      run();
      if (owner) await new Promise<void>((resolve) => settle(resolve, this.events));
      this.current = null;
      if (isOver()) return;
    }
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let place = heap.length;
    heap.push(event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!isBefore(event, heap[parent] as Event)) break;
      heap[place] = heap[parent] as Event;
      place = parent;
    }
    heap[place] = event;
  }

  #pop(): Event | null {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (!first || !last) return null;
    if (heap.length === 0) return first;
    let place = 0;
    for (let child = 1; child < heap.length; child = 2 * place + 1) {
      const right = child + 1;
      if (right < heap.length && isBefore(heap[right] as Event, heap[child] as Event)) child = right;
      if (!isBefore(heap[child] as Event, last)) break;
      heap[place] = heap[child] as Event;
      place = child;
    }
    heap[place] = last;
    return first;
  }
}

const isBefore = (a: Event, b: Event): boolean => a.time < b.time || (a.time === b.time && a.order < b.order);
