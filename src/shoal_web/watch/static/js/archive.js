// An archive: who contributed what and when, and how often each model is right.

import { axis, Chart, colour, distinct, legend, tooltip, variable } from "./charts.js";
import { board, cut, fill, h, name, nothing, percent, span, whole } from "../dom.js";

const of = (counts, what) => counts.filter((row) => row.what === what);
const when = (seconds) => (seconds === null ? "–" : new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " "));
const MODELS = 6; // columns of pass rates

export class Archive {
  constructor(section) {
    this.lead = h("p", { class: "lead wide" });
    this.timeline = new Chart("Contributions over time", { wide: true, note: "Rollouts in equal spans of time, by the clocks of their makers (UTC)." });
    this.rates = board("How often each model is right");
    this.makers = board("Makers");
    fill(section, h("div", { class: "grid" }, this.lead, this.timeline.element, this.rates.element, this.makers.element));
  }

  update({ summary: { counts, timeline } }) {
    const [all] = of(counts, "all"), makers = of(counts, "node"), models = of(counts, "model"), tasks = of(counts, "task");
    const none = !all?.completions;
    fill(this.lead, none ? "Nothing is in it yet." : [h("b", {}, `${whole(all.rollouts)} rollouts`), ` of ${whole(makers.length)} maker${makers.length === 1 ? "" : "s"} with ${whole(all.completions)} answers, `,
      h("b", {}, percent(all.share)), " of them right, ", `from ${when(all.first)} to ${when(all.last)} (${span(all.last - all.first)}).`]);
    this.draw(timeline);
    this.tell(tasks, models.slice(0, MODELS), new Map(of(counts, "model and task").map((row) => [JSON.stringify([row.task, row.model]), row])), all);
    const columns = [
      { title: "maker", get: (row) => h("span", { title: cut(row.key, 64) }, name(row.node)) },
      { title: "rollouts", number: true, get: (row) => whole(row.rollouts) },
      { title: "answers", number: true, get: (row) => whole(row.completions) },
      { title: "right", number: true, get: (row) => percent(row.share) },
      { title: "first", number: true, get: (row) => when(row.first) },
      { title: "last", number: true, get: (row) => when(row.last) },
    ];
    this.makers.list("A maker is the name of a key. Anybody can have several.", columns, makers, nothing("Nobody has contributed yet."));
  }

  /** Pass rates: a row for each task, a column for each model. */
  tell(tasks, models, rates, all) {
    const label = (model) => cut(model, 28) || "not named";
    const cell = (row) => (row ? h("span", { title: `${whole(row.completions)} answers` }, percent(row.share)) : "–");
    const columns = [
      { title: "task", get: (row) => cut(row.task, 60) },
      ...models.map(({ model }) => ({ title: label(model), number: true, get: (row) => cell(row.every ? models.find((each) => each.model === model) : rates.get(JSON.stringify([row.task, model]))) })),
      { title: "all", number: true, get: cell },
      { title: "answers", number: true, get: (row) => whole(row.completions) },
    ];
    const rows = tasks.length > 1 ? [{ ...all, task: "all tasks", every: true }, ...tasks] : tasks;
    const note = "The share of answers with a full reward (pass@1), as the archiver computed it. What a model is, its maker says.";
    this.rates.list(note, columns, tasks.length ? rows : [], nothing("No answer yet."));
  }

  draw(rows) {
    const places = [...new Set(rows.map(({ at }) => at))].sort((a, b) => a - b);
    const makers = [...new Set(rows.map((row) => row.name))].sort((a, b) => (a === "") - (b === "")); // the others last
    const known = new Map(rows.map((row) => [JSON.stringify([row.name, row.at]), row.rollouts]));
    const count = (maker, at) => known.get(JSON.stringify([maker, at])) ?? 0;
    const names = distinct(makers.map((maker) => maker || "others"));
    const columns = [{ title: "from", get: when }, ...names.map((title, index) => ({ title, number: true, get: (at) => whole(count(makers[index], at)) }))];
    const text = makers.map((maker, index) => `${names[index]}: ${places.reduce((sum, at) => sum + count(maker, at), 0)} rollouts`).join("; ") + ".";
    this.timeline.draw(() => ({
      legend: legend(names),
      grid: { left: 8, right: 16, top: 34, bottom: 8, containLabel: true },
      tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" } }),
      xAxis: axis({ type: "category", data: places.map((at) => when(at).slice(5)) }),
      yAxis: axis({ type: "value", minInterval: 1 }),
      series: makers.map((maker, index) => ({ type: "bar", stack: "all", name: names[index], barMaxWidth: 30, color: maker ? colour(index) : variable("--dim"), data: places.map((at) => count(maker, at)) })),
    }), text, columns, places, places.length ? "" : "Nothing yet.");
  }
}
