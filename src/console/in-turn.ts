/** Runs tasks of this process one after the other. */
export function inTurn(): <T>(task: () => Promise<T>) => Promise<T> {
  let latest: Promise<unknown> = Promise.resolve();
  return (task) => {
    const done = latest.then(task);
    latest = done.catch(() => {});
    return done;
  };
}
