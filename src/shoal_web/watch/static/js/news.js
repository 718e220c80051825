// Whether the runs that the server lists differ from what the page shows.

const AGED = 30_000; // ms after which the page asks again: ages and the time left change without news

/** `listed`: a run came, went, began or ended. `moved`: one of the `shown` has something new, or the page `waited` for long. */
export function newsOf({ runs, versions }, now, shown, waited) {
  const live = new Map(runs.map((run) => [run.id, run.live]));
  const latest = new Map(now.map((run) => [run.id, run.version]));
  return {
    listed: now.length !== runs.length || now.some((run) => live.get(run.id) !== run.live),
    moved: waited > AGED || shown.some((id) => latest.get(id) !== versions[id]),
  };
}
