import type postgres from "postgres";
import type { Database } from "./database.ts";

const TOPIC = "ledger_due";
/** A wake-up for nobody: its arrival shows that the listening connection lives. */
const BEAT = "";
const BEAT_MS = 5_000;

/** Tells the workers of all processes that something may be due. An optional speed-up: polling alone is enough. */
export interface Wake {
  /** After a commit, never inside it: NOTIFY takes a lock that would queue all commits behind each other. */
  notify(channels: Iterable<string>): void;
  /** Calls back with a channel id, until the returned function is called. */
  listen(onDue: (channel: string) => void): () => Promise<void>;
}

/** Wake-ups over LISTEN and NOTIFY, at most one NOTIFY under way; what comes meanwhile shares the next one. */
export function createWake({ sql, openListener }: Pick<Database, "sql" | "openListener">, beatMs = BEAT_MS): Wake {
  let waiting = new Set<string>();
  let busy = false;

  async function flush(): Promise<void> {
    if (busy || waiting.size === 0) return;
    busy = true;
    const channels = [...waiting];
    waiting = new Set();
    // A lost wake-up only costs the wait for the next poll.
    await sql`select pg_notify(${TOPIC}, channel) from json_array_elements_text(${JSON.stringify(channels)}::text::json) as channel`.catch(
      () => {},
    );
    busy = false;
    void flush();
  }

  function notify(channels: Iterable<string>): void {
    for (const channel of channels) waiting.add(channel);
    void flush();
  }

  /** A connection of its own, made anew when it hears nothing any more: behind a pooler, or after it was cut. */
  function listen(onDue: (channel: string) => void): () => Promise<void> {
    let listener: postgres.Sql | null = null;
    let heardAt = 0;

    function connect(): void {
      void listener?.end({ timeout: 0 }).catch(() => {});
      listener = openListener();
      heardAt = performance.now();
      listener
        .listen(TOPIC, (channel) => {
          heardAt = performance.now();
          if (channel !== BEAT) onDue(channel);
        })
        .catch(() => {});
    }

    connect();
    const beat = setInterval(() => {
      if (performance.now() - heardAt > 3 * beatMs) connect();
      notify([BEAT]);
    }, beatMs);
    beat.unref();
    return async () => {
      clearInterval(beat);
      await listener?.end({ timeout: 0 });
    };
  }

  return { notify, listen };
}
