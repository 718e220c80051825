// What a judge has measured: the leaderboard and curves.

import { axis, Chart, colour, distinct, tooltip, variable } from "./charts.js";
import { drawCurves } from "./curves.js";
import { board, cut, fill, fixed, fullName, h, name, nothing, percent, select, span, whole } from "../dom.js";
import { ask } from "./net.js";

const WIDTHS = [["10", "10 questions"], ["25", "25 questions"], ["100", "100 questions"], ["500", "500 questions"]];
const SHOWN = 15; // nodes whose intervals are drawn

const asked = ({ right = 0, wrong = 0, lapsed = 0 }) => right + wrong + lapsed;

export function judgeFigures({ totals, board }) {
  const last = board.reduce((latest, row) => Math.max(latest, row.time), 0);
  return [
    [whole(totals.nodes), totals.nodes === 1 ? "node" : "nodes"], [whole(asked(totals)), "questions"],
    [percent(asked(totals) ? totals.right / asked(totals) : null), "pass@1 of all"], [whole(totals.lapsed), "lapsed"],
    [whole(totals.void), "void"], [last ? span(Date.now() / 1000 - last) : "–", "since the last question"],
  ];
}

export class Judge {
  constructor(section, refresh) {
    this.width = "25";
    this.by = "mean";
    this.board = board("Leaderboard");
    this.intervals = new Chart("Top of the leaderboard", { note: "pass@1 of each node's last 100 questions, with Wilson's 95 % interval. Where intervals overlap, neither node is known to be better." });
    this.curves = new Chart("pass@1 against a node's questions", {
      controls: [
        select("of", [["mean", "models"], ["node", "top nodes"]], this.by, (value) => { this.by = value; refresh(); }),
        select("a point for", WIDTHS, this.width, (value) => { this.width = value; refresh(); }),
      ],
    });
    fill(section, h("div", { class: "grid" }, this.intervals.element, this.curves.element, this.board.element));
  }

  async update({ id, summary }) {
    this.drawIntervals(summary.board);
    this.leaderboard(summary.board);
    const curves = await ask(`runs/${id}/curve`, { metric: "pass@1", by: this.by, smooth: this.width });
    drawCurves(this.curves, curves.series, { share: true, what: "pass@1", empty: "no question has ended yet" });
  }

  drawIntervals(found) {
    const rows = found.slice(0, SHOWN);
    const names = distinct(rows.map((row) => row.node));
    const texts = rows.map((row, at) => `${names[at]}: ${interval(row)}\n${whole(row.questions)} questions, ${cut(row.model) || "no model named"}`);
    const columns = [{ title: "node", get: (row) => name(row.node) }, { title: "pass@1", number: true, get: interval }, { title: "questions", number: true, get: (row) => whole(row.questions) }];
    this.intervals.draw((small) => ({
      grid: { left: 20, right: 24, top: 10, bottom: 8, containLabel: true },
      tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" }, formatter: ([first]) => texts[first?.dataIndex] ?? "" }),
      xAxis: axis({ type: "value", min: 0, max: 1, splitNumber: small ? 4 : 5, axisLabel: { color: variable("--dim"), formatter: (value) => Math.round(100 * value) + " %" } }),
      yAxis: axis({ type: "category", data: names, inverse: true, axisTick: { show: false }, axisLabel: { color: variable("--text"), fontSize: small ? 11 : 12, width: small ? 135 : 180, overflow: "truncate" } }),
      series: [
        { type: "bar", stack: "interval", silent: true, itemStyle: { color: "transparent" }, data: rows.map((row) => row.low) },
        { type: "bar", stack: "interval", barWidth: 8, itemStyle: { color: colour(0), opacity: 0.35, borderRadius: 4 }, data: rows.map((row) => row.high - row.low) },
        { type: "scatter", symbolSize: 9, color: colour(0), data: rows.map((row) => row["pass@1"]) },
      ],
    }), texts.slice(0, 5).join("; ") + ".", columns, rows, rows.length ? "" : "no node has been asked yet");
  }

  leaderboard(found) {
    const columns = [
      { title: "node", get: (row) => h("span", { title: row.key }, row.rank ? row.rank + ". " : "", fullName(row.node, row.display_name)) },
      { title: "pass@1", number: true, get: (row) => percent(row["pass@1"]) },
      { title: "95 % interval", number: true, get: (row) => `${fixed(100 * row.low, 1)} to ${percent(row.high)}` },
      { title: "questions", number: true, get: (row) => whole(row.questions) },
      { title: "model", get: (row) => h("span", { class: "long" }, name(row.model || "–")) },
      { title: "in a swarm", get: (row) => (row.in_swarm === null ? "at times" : row.in_swarm ? "yes" : "no") },
      { title: "lapsed", number: true, get: (row) => whole(row.lapsed) },
      { title: "void", number: true, get: (row) => whole(row.void) },
      { title: "round", number: true, get: (row) => whole(row.round) },
      { title: "last asked", number: true, get: (row) => span(Date.now() / 1000 - row.time) + " ago" },
    ];
    const caption = "Each node's last 100 questions, in the order of the lower end of the interval. A node with fewer than 50 answers has no rank. Nodes themselves declare the model, the round and whether they are in a swarm.";
    this.board.list(caption, columns, found.slice(0, 200), nothing("no node has been asked yet"));
  }
}

function interval(row) {
  return `${percent(row["pass@1"])} (${fixed(100 * row.low, 1)} to ${percent(row.high)})`;
}
