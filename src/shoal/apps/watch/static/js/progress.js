// Curves and the leaderboard.

import { Chart, drawCurves } from "./charts.js";
import { badge, card, cut, escaped, fill, fixed, h, isFolder, listing, name, percent, select, span, whole } from "./dom.js";
import { ask } from "./net.js";

const MANY = 12; // nodes, from which their mean is shown instead
const SMOOTH = [["0", "as it is"], ["10", "10 rounds"], ["50", "50 rounds"], ["200", "200 rounds"]];

export class Progress {
  constructor(section, refresh) {
    this.refresh = refresh;
    this.smooth = "10";
    this.by = null;
    this.metric = "entropy";
    this.node = "";
    this.heldOut = new Chart("Held-out pass@1", { note: "Right answers to questions that are never trained on." });
    this.bySelect = h("span");
    this.reward = new Chart("Local reward", {
      controls: [select("mean over", SMOOTH, this.smooth, (value) => { this.smooth = value; refresh(); }), this.bySelect],
      note: "Mean reward of a node's own completions, unfiltered.",
    });
    this.nodeSelect = h("span");
    this.tasks = new Chart("Held-out pass@1 by task", { controls: [this.nodeSelect] });
    this.metricSelect = h("span");
    this.other = new Chart("Another figure", { controls: [this.metricSelect] });
    this.beside = h("div", { class: "controls" });
    this.besideCard = h("details", { class: "card wide", hidden: true }, h("summary", {}, "Show other runs beside this one"), this.beside);
    this.answers = h("div");
    this.answersSelect = h("span");
    this.answersCard = card("Before and after", [this.answersSelect], this.answers);
    this.answersCard.classList.add("wide");
    this.answersOf = "";
    this.board = h("div");
    this.boardCard = card("Leaderboard", null, this.board);
    this.boardCard.classList.add("wide");
    fill(section, h("div", { class: "grid" }, this.besideCard, this.heldOut.element, this.reward.element, this.boardCard, this.answersCard, this.tasks.element, this.other.element));
  }

  async update({ id, summary, runs, beside, compare }) {
    this.choices(summary);
    this.otherRuns(id, runs, beside, compare);
    const by = this.by ?? (summary.nodes.length > MANY ? "mean" : "node");
    const shown = [id, ...beside];
    let against = "rounds";
    const curve = async (metric, smooth) => {
      if (shown.length === 1) {
        const one = await ask(`runs/${id}/curve`, { metric, by, smooth });
        against = one.against ?? "rounds";
        return one.series;
      }
      const all = await Promise.all(shown.map((run) => ask(`runs/${run}/curve`, { metric, by: "mean", smooth })));
      return all.flatMap((each, at) => each.series.map((one) => ({ ...one, name: runs.find((run) => run.id === shown[at])?.title ?? "" })));
    };
    const [heldOut, reward, tasks, other] = await Promise.all([
      curve("eval/pass@1", 0), curve("reward/local", this.smooth),
      ask(`runs/${id}/tasks`, { node: this.node }), curve(this.metric, this.smooth),
    ]);
    this.leaderboard(summary);
    await this.beforeAndAfter(id, summary);
    drawCurves(this.heldOut, heldOut, { share: true, what: "held-out pass@1", empty: "no evaluation yet", against });
    drawCurves(this.reward, reward, { what: "local reward", empty: "no round yet", against });
    this.tasks.element.hidden = this.other.element.hidden = summary.kind === "swarm"; // it has neither
    drawCurves(this.tasks, tasks.series, { share: true, what: "held-out pass@1 of each task", empty: "no evaluation by task" });
    drawCurves(this.other, other, { what: this.metric, empty: "this run does not have it" });
  }

  choices(summary) {
    if (!summary.metrics.includes(this.metric) && summary.metrics.length) this.metric = summary.metrics[0];
    const key = JSON.stringify([summary.metrics, summary.nodes.map((node) => node.name).sort()]);
    if (key === this.key) return;
    this.key = key;
    const nodes = summary.nodes.map((node) => node.name).sort();
    fill(this.metricSelect, select("figure", summary.metrics.map((each) => [each, each]), this.metric, (value) => { this.metric = value; this.refresh(); }));
    fill(this.nodeSelect, select("of", [["", "mean of nodes"], ...nodes.map((each) => [each, each])], this.node, (value) => { this.node = value; this.refresh(); }));
    const by = this.by ?? (nodes.length > MANY ? "mean" : "node");
    fill(this.bySelect, nodes.length > 1 && select("curves of", [["node", "each node"], ["mean", summary.kind === "swarm" ? "their median" : "their mean"]], by, (value) => { this.by = value; this.refresh(); }));
  }

  otherRuns(id, runs, beside, compare) {
    const key = JSON.stringify([id, runs.map((run) => run.id), beside]);
    runs = runs.filter(isFolder);
    this.besideCard.hidden = runs.length < 2 || !runs.some((run) => run.id === id);
    if (key === this.besideKey) return;
    this.besideKey = key;
    const others = runs.filter((run) => run.id !== id).slice(0, 100);
    fill(this.beside, others.map((run) => {
      const box = h("input", { type: "checkbox", checked: beside.includes(run.id), disabled: beside.length >= 7 && !beside.includes(run.id) });
      box.addEventListener("change", () => compare(box.checked ? [...beside, run.id] : beside.filter((each) => each !== run.id)));
      return h("label", {}, box, h("bdi", {}, cut(run.title, 50)));
    }));
  }

  /** What a node answered to the same few held-out questions before it learned, and what it answers now. */
  async beforeAndAfter(id, summary) {
    const nodes = summary.nodes.map((node) => node.name);
    this.answersCard.hidden = !isFolder(summary) || !nodes.length;
    if (this.answersCard.hidden) return;
    if (!nodes.includes(this.answersOf)) this.answersOf = nodes[0]; // the best one
    fill(this.answersSelect, nodes.length > 1 && select("by", nodes.map((each) => [each, each]), this.answersOf, (value) => { this.answersOf = value; this.refresh(); }));
    const { pairs } = await ask(`runs/${id}/transcripts`, { node: this.answersOf });
    const said = (answer) => answer && h("div", {}, badge(answer.reward), h("pre", { class: "text" }, escaped(answer.completion) || "(empty)"));
    const columns = [
      { title: "question", get: (pair) => h("div", { class: "said" }, escaped(pair.question)) },
      { title: "before", get: (pair) => said(pair.before) },
      { title: "now", get: (pair) => said(pair.after) },
    ];
    const ends = pairs.length ? `Rounds ${pairs[0].before.round} and ${(pairs[0].after ?? pairs[0].before).round}. ` : "";
    const note = ends + "Held-out questions, kept whatever the answers are. The figure is the reward: 1 is right.";
    fill(this.answers, pairs.length ? listing("Before and after", note, columns, pairs) : h("p", { class: "empty" }, "no evaluation yet"));
  }

  leaderboard(summary) {
    const change = (node) => {
      if (node.held_out === null || node.held_out === node.held_out_first) return "";
      const by = 100 * (node.held_out - node.held_out_first);
      return h("span", { class: by > 0 ? "up" : "down" }, ` ${by > 0 ? "▲" : "▼"} ${Math.abs(by).toFixed(1)}`);
    };
    const taught = new Map();
    for (const { maker, share } of summary.gradient) taught.set(maker, (taught.get(maker) ?? 0) + share);
    const ranked = summary.kind !== "swarm"; // there all figures are the nodes' own word
    let place = 0;
    const rank = new Map(summary.nodes.map((node) => [node, ++place]));
    const columns = [
      { title: "node", get: (node) => h("span", { title: node.id ?? null }, ranked ? rank.get(node) + ". " : null, name(node.name)) },
      { title: "heard for", key: "heard", number: true, get: (node) => span(node.heard) },
      { title: "held-out pass@1", number: true, get: (node) => h("span", {}, percent(node.held_out), change(node)) },
      { title: "local reward", number: true, get: (node) => fixed(node.reward, 3) },
      { title: "from others", key: "outside", number: true, get: (node) => percent(node.outside, 0) },
      { title: "to others", key: "outside", number: true, get: (node) => (taught.has(node.name) ? percent(taught.get(node.name), 0) : "–") },
      { title: "shared", key: "shared", number: true, get: (node) => whole(node.shared) },
      { title: "taken", number: true, get: (node) => whole(node.taken) },
      { title: "others took", key: "given", number: true, get: (node) => whole(node.given) },
      { title: "round", number: true, get: (node) => whole(node.round) },
      { title: "model", key: "model", get: (node) => h("span", { class: "long" }, name(node.model ?? "–")) },
      { title: "last heard", key: "ago", number: true, get: (node) => span(node.ago) + " ago" },
    ].filter(({ key }) => !key || summary.nodes.some((node) => (node[key] ?? null) !== null));
    const caption = ranked ? "By held-out pass@1, with its change since round 0; local reward is the mean of the last 20 rounds. " +
      "From others: their share of the node's gradient. To others: its share of theirs, added up." :
      "The nodes heard for longest come first. All figures are the nodes' own word, and nobody has checked them. Taken: rollouts of others that " +
      "the node says it trained on. Others took: what other nodes say they took of it." + (summary.more ? ` At least ${whole(summary.more)} more nodes spoke and are not shown.` : "");
    fill(this.board, summary.nodes.length ? listing("Leaderboard", caption, columns, ranked ? summary.nodes.slice(0, 200) : summary.nodes) : h("p", { class: "empty" }, "no node has finished a round"));
  }
}
