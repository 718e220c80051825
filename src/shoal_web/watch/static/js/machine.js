// The machines: tokens per second, and where the time goes.

import { axis, Chart, colour, distinct, legend, tooltip, variable } from "./charts.js";
import { drawCurves } from "./curves.js";
import { board, fill, fixed, h, listing, name, nothing, percent, span, whole } from "../dom.js";
import { ask } from "./net.js";
import { Settings } from "./settings.js";

const PHASES = ["generate", "score", "learn"];

/** What few people ask for: where the time goes, and the settings. */
export class Details {
  constructor(section) {
    const rooms = [h("div"), h("div")];
    fill(section, h("div", { class: "stack" }, rooms));
    this.parts = [new Machine(rooms[0]), new Settings(rooms[1])];
  }

  update(context) {
    return Promise.all(this.parts.map((part) => part.update(context)));
  }
}

class Machine {
  constructor(section) {
    this.spent = new Chart("Seconds of a round", { note: "Means over the last 20 rounds." });
    this.course = new Chart("Seconds against rounds", { note: "Means over nodes." });
    this.table = board("Nodes");
    fill(section, h("div", { class: "grid" }, this.table.element, this.spent.element, this.course.element));
  }

  async update({ id, summary }) {
    const curves = await Promise.all(PHASES.map((phase) => ask(`runs/${id}/curve`, { metric: "seconds/" + phase, by: "mean", smooth: 5 })));
    const { nodes } = summary;
    const columns = [
      { title: "node", get: (node) => name(node.name) },
      { title: "tokens/s", number: true, get: (node) => whole(node.tokens_per_second) },
      ...PHASES.map((phase) => ({ title: phase + ", s", number: true, get: (node) => fixed(node.seconds[phase], 2) })),
      { title: "tokens generated", number: true, get: (node) => whole(node.tokens) },
      { title: "mean length", number: true, get: (node) => fixed(node.length, 1) },
      { title: "cut short", number: true, get: (node) => percent(node.truncated, 0) },
      { title: "missing", zero: !nodes.some((node) => node.missing), number: true, get: (node) => whole(node.missing) },
      { title: "pool", number: true, get: (node) => whole(node.pool) },
    ];
    if (nodes.some((node) => node.saving !== null)) columns.push({ title: "checkpoints, s", number: true, get: (node) => fixed(node.saving, 1) });
    if (nodes.some((node) => node.evaluating !== null)) columns.push({ title: "evaluations, s", number: true, get: (node) => fixed(node.evaluating, 1) });
    const left = summary.left ? `About ${span(summary.left)} left. ` : "";
    const caption = left + "Means over the last 20 rounds. Tokens/s: generated and trained on, over the time of both. " +
      "Cut short: completions that reached the longest length. Missing: completions that an endpoint did not give. Checkpoints and evaluations: wall time in all.";
    fill(this.table.room, nodes.length ? listing("Nodes", caption, columns.filter(({ zero }) => !zero), nodes.slice(0, 200)) : nothing("No node has finished a round yet."));
    const shown = nodes.slice(0, 40);
    const names = distinct(shown.map((node) => node.name));
    const text = shown.slice(0, 10).map((node, at) => `${names[at]}: ` + PHASES.map((phase) => `${phase} ${fixed(node.seconds[phase])}`).join(", ")).join("; ");
    this.spent.draw((small) => ({
      legend: legend(PHASES),
      tooltip: tooltip({ trigger: "axis", valueFormatter: (value) => fixed(value) + " s" }),
      grid: { left: 20, right: 20, top: 34, bottom: 8, containLabel: true },
      xAxis: axis({ type: "value", splitNumber: small ? 3 : 6 }),
      yAxis: axis({ type: "category", data: names, inverse: true, axisTick: { show: false }, axisLabel: { color: variable("--dim"), width: small ? 110 : 170, overflow: "truncate" } }),
      series: PHASES.map((phase, at) => ({ type: "bar", stack: "all", name: phase, barMaxWidth: 24, color: colour(at), data: shown.map((node) => node.seconds[phase]) })),
    }), text, [columns[0], ...columns.slice(2, 5)], shown, shown.length ? "" : "no round yet");
    const series = curves.flatMap((curve, at) => curve.series.map((each) => ({ ...each, name: PHASES[at] })));
    drawCurves(this.course, series, { what: "seconds by phase", empty: "no round yet" });
  }
}
