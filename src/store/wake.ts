import type postgres from "postgres";

const TOPIC = "ledger_due";

/** Tells the workers of all processes that something may be due. An optional speed-up: polling alone is enough. */
export interface Wake {
  /** After a commit, never inside it: NOTIFY takes a lock that would queue all commits behind each other. */
  notify(channels: Iterable<string>): void;
  /** Calls back with a channel id; re-subscribes by itself when its connection breaks. */
  listen(onDue: (channel: string) => void): Promise<() => Promise<void>>;
}

/** Wake-ups over LISTEN and NOTIFY, at most one statement under way; what comes meanwhile shares the next one. */
export function createWake(sql: postgres.Sql): Wake {
  let waiting = new Set<string>();
  let busy = false;

  async function flush(): Promise<void> {
    if (busy || waiting.size === 0) return;
    busy = true;
    const channels = [...waiting];
    waiting = new Set();
    // A lost wake-up only costs the wait for the next poll.
    await sql`select pg_notify(${TOPIC}, channel) from unnest(${`{${channels.join(",")}}`}::text::text[]) as channel`.catch(
      () => {},
    );
    busy = false;
    void flush();
  }

  return {
    notify(channels) {
      for (const channel of channels) waiting.add(channel);
      void flush();
    },
    async listen(onDue) {
      const { unlisten } = await sql.listen(TOPIC, onDue);
      return unlisten;
    },
  };
}
