// Curves and the leaderboard.

import { Chart } from "./charts.js";
import { askSpread, drawCurves } from "./curves.js";
import { board, fill, fixed, fullName, h, inOrder, name, nothing, percent, points, reselect, span, term, whole } from "../dom.js";
import { learningTold } from "./figures.js";
import { ask } from "./net.js";
import { OtherRuns } from "./other_runs.js";

const BASES = [["eval/blind", "blind"], ["eval/shuffled", "shuffled"]];
const SMOOTH = 10; // rounds of a mean

/** What a chart of held-out pass@1 shows. */
function heldOutNote(series) {
  const bases = series.some(({ look }) => look === "base");
  return bases ? "Blind: always the commonest answer of the task. Shuffled: the nodes' answers, scored against other questions. Only what lies above both needs the question." : "";
}

export class Progress {
  constructor(section, refresh) {
    this.refresh = refresh;
    this.metric = "entropy";
    this.node = "";
    this.lead = h("p", { class: "lead wide" });
    this.heldOut = new Chart("Right on questions it never practised", { controls: [term("held-out pass@1")], note: heldOutNote([]) });
    this.reward = new Chart("Reward for its own answers", {
      controls: [term("local reward")], note: "Mean reward of a node's own completions, unfiltered, over the last 10 rounds.",
    });
    this.nodeSelect = h("span");
    this.tasks = new Chart("The same by task", { controls: [this.nodeSelect] });
    this.metricSelect = h("span");
    this.other = new Chart("Another figure", { controls: [this.metricSelect] });
    this.others = new OtherRuns();
    this.board = board("Nodes");
    fill(section, h("div", { class: "grid" }, this.lead, this.others.element, this.heldOut.element, this.reward.element, this.board.element, this.tasks.element, this.other.element));
  }

  async update({ id, summary, runs, beside, compare }) {
    this.choices(summary);
    this.lead.hidden = !summary.standing;
    if (summary.standing) fill(this.lead, learningTold(summary));
    this.others.show(id, runs, beside, compare);
    this.leaderboard(summary);
    const ranked = summary.kind !== "swarm"; // which has no curves
    for (const chart of [this.heldOut, this.reward, this.tasks, this.other]) chart.element.hidden = !ranked;
    if (!ranked) return;
    const shown = [id, ...beside];
    const curve = async (metric, smooth, bases = []) => {
      if (shown.length === 1) return askSpread(id, metric, smooth, bases);
      const all = await Promise.all(shown.map((run) => ask(`runs/${run}/curve`, { metric, by: "mean", smooth })));
      return all.flatMap((each, at) => each.series.map((one) => ({ ...one, name: runs.find((run) => run.id === shown[at])?.title ?? "" })));
    };
    const [heldOut, reward, tasks, other] = await Promise.all([
      curve("eval/pass@1", 0, BASES), curve("reward/local", SMOOTH),
      ask(`runs/${id}/curve`, { metric: "eval/pass@1", by: "task", node: this.node }), curve(this.metric, SMOOTH),
    ]);
    this.heldOut.note.textContent = heldOutNote(heldOut);
    this.heldOut.note.hidden = !this.heldOut.note.textContent;
    drawCurves(this.heldOut, heldOut, { share: true, what: "held-out pass@1", empty: "No evaluation yet." });
    drawCurves(this.reward, reward, { what: "local reward", empty: "No round yet." });
    drawCurves(this.tasks, tasks.series, { share: true, what: "held-out pass@1 of each task", empty: "No evaluation by task." });
    drawCurves(this.other, other, { what: this.metric, empty: "This run does not have it." });
    this.other.fold(false); // one asked for it
  }

  choices(summary) {
    if (!summary.metrics.includes(this.metric) && summary.metrics.length) this.metric = summary.metrics[0];
    const nodes = inOrder(summary.nodes.map((node) => node.name));
    reselect(this.metricSelect, "figure", summary.metrics.map((each) => [each, each]), this.metric, (value) => { this.metric = value; this.refresh(); });
    reselect(this.nodeSelect, "of", [["", "mean of nodes"], ...nodes.map((each) => [each, each])], this.node, (value) => { this.node = value; this.refresh(); });
  }

  leaderboard(summary) {
    const change = (node) => {
      if (node.held_out === null || node.held_out === node.held_out_first) return "";
      const by = 100 * (node.held_out - node.held_out_first);
      return h("span", { class: by > 0 ? "up" : "down" }, ` ${by > 0 ? "▲" : "▼"} ${Math.abs(by).toFixed(1)}`);
    };
    const ranked = summary.kind !== "swarm"; // there all figures are the nodes' own word
    const columns = [
      { title: "node", get: (node) => h("span", { title: node.id ?? null }, ranked ? summary.nodes.indexOf(node) + 1 + ". " : null, fullName(node.name, node.display_name)) },
      { title: "heard for", key: "heard", number: true, get: (node) => span(node.heard) },
      { title: "right, never practised", number: true, get: (node) => h("span", {}, percent(node.held_out), change(node)) },
      { title: "above blind", key: "blind", number: true, get: (node) => points(node.held_out === null ? null : node.held_out - node.blind) },
      { title: "reward", number: true, get: (node) => fixed(node.reward, 3) },
      { title: "took", key: "given", number: true, get: (node) => whole(node.taken) },
      { title: "peers took", key: "given", number: true, get: (node) => whole(node.given) },
      { title: "limited by", key: "limited_by", number: true, get: (node) => whole(node.limited_by) },
      { title: "round", number: true, get: (node) => whole(node.round) },
      { title: "model", key: "model", get: (node) => h("span", { class: "long" }, name(node.model ?? "–")) },
      { title: "last heard", key: "ago", number: true, get: (node) => span(node.ago) + " ago" },
    ].filter(({ key }) => !key || summary.nodes.some((node) => (node[key] ?? null) !== null));
    const blind = summary.nodes.some((node) => (node.blind ?? null) !== null) ? "Above blind: in points, over always giving the task's commonest answer. " : "";
    const caption = ranked ? "The best first, with the change since the first evaluation in points; reward is the mean of the last 10 rounds. " + blind :
      "The nodes heard for longest come first. All figures are the nodes' own word, and nobody has checked them. Took: rollouts of peers that " +
      "the node says it trained on. Peers took: what other nodes say they took of it. Limited by: nodes that say they do not learn from it for a time." + (summary.more ? ` At least ${whole(summary.more)} more nodes spoke and are not shown.` : "");
    const none = ranked ? nothing("No node has finished a round yet.") : nothing("Nobody has said anything yet. Nodes speak after each round; start one with", `shoal join --swarm ${summary.title.replace("swarm: ", "")}`);
    this.board.list(caption, columns, ranked ? summary.nodes.slice(0, 200) : summary.nodes, none);
  }
}
