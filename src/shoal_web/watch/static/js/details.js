// What few people ask for: how fast each node is, and the settings.

import { board, card, cut, escaped, fill, fixed, h, isFolder, name, nothing, percent, span, whole } from "../dom.js";
import { ask } from "./net.js";
import { OtherRuns } from "./other_runs.js";

const PHASES = ["generate", "score", "learn"];

export class Details {
  constructor(section) {
    this.table = board("Nodes");
    this.others = new OtherRuns();
    this.settings = h("div");
    fill(section, h("div", { class: "stack" }, this.table.element, this.others.element, card("Settings", null, this.settings)));
  }

  async update({ id, summary, runs, beside, compare }) {
    const { nodes } = summary;
    const columns = [
      { title: "node", get: (node) => name(node.name) },
      { title: "tokens/s", number: true, get: (node) => whole(node.tokens_per_second) },
      ...PHASES.map((phase) => ({ title: phase + ", s", number: true, get: (node) => fixed(node.seconds[phase], 2) })),
      { title: "mean length", number: true, get: (node) => fixed(node.length, 1) },
      { title: "cut short", number: true, get: (node) => percent(node.truncated, 0) },
    ];
    const left = summary.left ? `About ${span(summary.left)} left. ` : "";
    const note = left + "Means over the last 10 rounds. Tokens/s: generated and trained on. Cut short: completions that reached the longest length.";
    this.table.list(note, columns, nodes.slice(0, 200), nothing("No node has finished a round yet."));
    this.others.show(id, runs, beside, compare);
    const shown = [id, ...beside];
    const texts = (await Promise.all(shown.map((run) => ask(`runs/${run}/settings`)))).map(({ settings }) => settings);
    const key = JSON.stringify([shown, texts]);
    if (key === this.shown) return;
    this.shown = key;
    const title = (run) => cut(runs.find((each) => each.id === run)?.title ?? "", 40);
    if (shown.length > 1) {
      const lines = texts.map(named);
      fill(this.settings, h("p", { class: "note" }, "What differs between these runs."), shown.map((run, at) => {
        const own = lines[at].filter((line) => !lines.every((each) => each.includes(line)));
        return [h("h3", {}, title(run)), h("pre", { class: "text" }, escaped(own.join("\n")) || "nothing")];
      }));
    } else {
      fill(this.settings, texts[0] ? [h("p", { class: "note" }, "config.toml: shoal run --config on it repeats the run." + (runs.filter(isFolder).length > 1 ? " Choose another run above to see what differs." : "")), h("pre", { class: "text" }, escaped(texts[0]))] : nothing("This run has no config.toml that can be read."));
    }
  }
}

/** The lines of a file of settings, each with its section. */
function named(text) {
  let section = "";
  return text.split("\n").flatMap((line) => {
    const head = /^\[+([^\]]+)\]+$/.exec(line.trim());
    if (head) section = head[1] + ".";
    return head || !line.trim() || line.startsWith("#") ? [] : [section + line];
  });
}
