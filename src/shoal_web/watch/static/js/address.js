// What the page shows stands in its address, so that a view can be sent: #view=rollouts&run=ab12&task=gcd&reward=1

const OWN = ["view", "run", "with"];
const LONGEST = 300; // characters of a value

/** {view, run, beside, kept}: `kept` is what the view itself wrote there. */
export function readAddress() {
  const given = [...new URLSearchParams(location.hash.slice(1))].map(([key, value]) => [key, value.slice(0, LONGEST)]);
  const all = Object.fromEntries(given);
  return {
    view: all.view, run: all.run, beside: (all.with ?? "").split(",").filter(Boolean),
    kept: Object.fromEntries(given.filter(([key, value]) => !OWN.includes(key) && value)),
  };
}

export function addressOf({ view, run, beside, kept }) {
  const more = Object.entries(kept ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return "#" + new URLSearchParams([["view", view], ["run", run ?? ""], ...(beside.length ? [["with", beside.join(",")]] : []), ...more]);
}
