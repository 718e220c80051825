// The figures at the top of the page: of a run, a live swarm or a judge.

import { fill, fixed, h, percent, span, term, whole } from "../dom.js";
import { judgeFigures } from "./judge.js";

/** The figures at the top of the page. */
export function figures(room, summary) {
  const all = summary.kind === "archive" ? [] : summary.kind === "judge" ? judgeFigures(summary) : summary.kind === "swarm" ? heardFigures(summary) : runFigures(summary);
  fill(room, all.map(([value, what]) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, what))));
}

/** Of a live swarm, by its nodes' own word. */
function heardFigures(summary) {
  const count = whole(summary.nodes.length + summary.more) + (summary.more ? "+" : "");
  return [
    [count, summary.nodes.length === 1 && !summary.more ? "node heard" : "nodes heard"],
    [whole(summary.notices), "rounds reported"], [summary.ago === null ? "–" : span(summary.ago), "since the last"],
  ];
}

/** The numbers are those of `runs.standing`, as in the terminal. */
function runFigures({ standing, of_rounds, rounds, left, nodes, swarm }) {
  const [before, now] = [standing.right[0], standing.right.at(-1)];
  const count = swarm ? [swarm.peers, "peer"] : [nodes.length, "node"];
  return [
    [percent(now), ["right on questions it never practised", standing.right.length > 1 && `, ${percent(before)} before`, " ", term("held-out pass@1")]],
    [fixed(standing.reward, 3), ["for its own answers, of the last 10 rounds ", term("local reward")]],
    [whole(rounds), (of_rounds ? `of ${whole(of_rounds)} rounds` : rounds === 1 ? "round" : "rounds") + (left ? `, about ${span(left)} left` : "")],
    [whole(count[0]), count[1] + (count[0] === 1 ? "" : "s")],
  ];
}

/** Whether it is learning: the change against what chance does to as many questions. */
export function learningTold({ standing: { right, blind, questions, intervals } }) {
  const [before, now] = [right[0], right.at(-1)];
  if (!right.length) return ["Not measured yet: a run asks questions that it never practises before round 1."];
  if (right.length === 1) return ["Not known yet. Before training it is right on ", h("b", {}, percent(now)), " of the questions that it never practises; the next evaluation tells more."];
  const noise = 2 * Math.sqrt((now * (1 - now) + before * (1 - before)) / Math.max(1, questions ?? 1));
  const verdict = now - before > noise ? "Yes: " : before - now > noise ? "No, it gets worse: " : "Not to be told from chance yet: ";
  return [h("b", {}, verdict), "right on ", h("b", {}, percent(now)), ` of ${questions ? whole(questions) + " " : "the "}questions that it never practised, ${percent(before)} before`,
    intervals.length ? ` (95 % interval: ${intervals.at(-1).map((end) => percent(end)).join(" to ")}).` : ".",
    blind !== null && [` Answers that ignore the question get ${percent(blind)} `, term("blind baseline")]];
}
