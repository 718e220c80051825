// The figures at the top of the page: of a run, a live swarm or a judge.

import { fill, fixed, h, percent, span, whole } from "./dom.js";
import { judgeFigures } from "./judge.js";

/** The figures at the top of the page. */
export function figures(room, summary) {
  const all = summary.kind === "judge" ? judgeFigures(summary) : summary.kind === "swarm" ? heardFigures(summary) : runFigures(summary);
  fill(room, all.map(([value, what]) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, what))));
}

const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : null);

/** Of a live swarm, by its nodes' own word. */
function heardFigures(summary) {
  const count = whole(summary.nodes.length + summary.more) + (summary.more ? "+" : "");
  return [
    [count, summary.nodes.length === 1 && !summary.more ? "node heard" : "nodes heard"],
    [whole(summary.notices), "rounds reported"], [summary.ago === null ? "–" : span(summary.ago), "since the last"],
  ];
}

function runFigures(summary) {
  const known = (key) => summary.nodes.map((node) => node[key] ?? null).filter((value) => value !== null);
  const passed = mean(known("held_out")), first = mean(known("held_out_first")), blind = mean(known("blind"));
  const rounds = summary.of_rounds ? `of ${whole(summary.of_rounds)} rounds` : summary.rounds === 1 ? "round" : "rounds";
  return [
    [percent(passed), "held-out pass@1" + (passed !== null && first !== null ? `, ${percent(first)} at first` : "")],
    ...(blind === null ? [] : [[(100 * Math.abs(passed - blind)).toFixed(1), `points ${passed < blind ? "below" : "above"} blind answers (${percent(blind)})`]]),
    [fixed(mean(known("reward")), 3), "local reward"],
    [whole(summary.rounds), rounds + (summary.left ? `, about ${span(summary.left)} left` : "")],
    [whole(summary.nodes.length), summary.nodes.length === 1 ? "node" : "nodes"],
    summary.swarm ? [whole(summary.swarm.peers), summary.swarm.peers === 1 ? "peer" : "peers"] : [whole(summary.completions), "completions"],
  ];
}
