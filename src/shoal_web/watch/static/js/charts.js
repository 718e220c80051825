// Charts by Apache ECharts (vendor/), each with a text for screen readers and a table of its data.
// Tooltips are drawn on the canvas (`richText`): no chart ever makes markup of a name.

import { cut, h, listing } from "../dom.js";

// After Okabe and Ito, distinct for the colour-blind; darker for light pages, lighter for dark ones.
const LIGHT = ["#0072b2", "#d55e00", "#00805f", "#b5468b", "#8a6d00", "#3b8fc4", "#5b4bb5", "#555555"];
const DARK = ["#56b4e9", "#ff8f4a", "#2fcf9f", "#f08fc8", "#f0e442", "#9ad0f5", "#b3a6ff", "#c8c8c8"];
export const DASHES = ["solid", "dashed", "dotted"];

const loading = import("/static/vendor/echarts-6.1.0.esm.min.js");
const charts = new Set();

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function colour(at) {
  const colours = isDark() ? DARK : LIGHT;
  return colours[at % colours.length];
}

export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Draw all charts again, in other colours. */
export function repaint() {
  for (const chart of charts) chart.paint();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

export class Chart {
  /** `controls`: elements at the right of the title. */
  constructor(title, { controls = [], note = "", tall = false, wide = false } = {}) {
    this.title = title;
    this.heading = h("h2", {}, title);
    this.room = h("div", { class: "chart" + (tall ? " tall" : ""), role: "img", "aria-label": title + ": loading" });
    this.empty = h("p", { class: "empty", hidden: true });
    this.note = h("p", { class: "note", hidden: !note }, note);
    this.data = h("details", { ontoggle: () => this.tabulate() }, h("summary", {}, "Data as a table"), h("div"));
    this.element = h("article", { class: "card" + (wide ? " wide" : "") },
      h("div", { class: "head" }, this.heading, h("div", { class: "controls" }, controls)),
      this.room, this.empty, this.note, this.data);
    this.option = null;
    charts.add(this);
    new ResizeObserver(() => this.resize()).observe(this.room);
  }

  /** `make(small, width, height)` gives ECharts' option, `text` says what is to be seen, `columns` and `rows` are the table. */
  draw(make, text, columns, rows, empty = "") {
    this.option = make;
    this.rows = rows;
    this.columns = columns;
    if (this.flat) empty = "0 throughout.";
    this.element.classList.toggle("none", Boolean(empty));
    this.room.hidden = Boolean(empty);
    this.empty.hidden = !empty;
    this.empty.textContent = empty;
    this.room.setAttribute("aria-label", this.title + ". " + text);
    this.tabulate();
    return this.paint();
  }

  /** A figure that is 0 throughout takes a line at the end, and no chart. */
  fold(flat) {
    this.flat = flat;
    this.element.classList.toggle("flat", flat);
  }

  async paint() {
    if (!this.option || this.room.hidden || !this.room.clientWidth) return;
    const echarts = await loading;
    this.chart ??= echarts.init(this.room, null, { renderer: "canvas" });
    const small = this.room.clientWidth < 500;
    const aria = { enabled: true, label: { description: this.room.getAttribute("aria-label") } };
    this.chart.setOption({ ...common(), aria, ...this.option(small, this.room.clientWidth, this.room.clientHeight) }, { notMerge: true });
    this.room.setAttribute("data-drawn", "");
  }

  resize() {
    if (!this.room.clientWidth) return;
    this.chart?.resize();
    this.paint();
  }

  tabulate() {
    if (this.data.open && this.columns) this.data.lastChild.replaceChildren(...listing(this.title + ", as a table", "", this.columns, this.rows));
  }
}

function common() {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: variable("--text") },
    tooltip: tooltip(),
  };
}

export function tooltip(more = {}) {
  return {
    renderMode: "richText", confine: true, backgroundColor: variable("--card"), borderColor: variable("--line"),
    textStyle: { color: variable("--text"), fontSize: 12 }, ...more,
  };
}

export function axis(more = {}) {
  const dim = variable("--dim"), line = variable("--line");
  return { axisLabel: { color: dim, hideOverlap: true }, axisLine: { lineStyle: { color: line } }, splitLine: { lineStyle: { color: line, opacity: 0.6 } }, nameTextStyle: { color: dim }, ...more };
}

export function legend(names) {
  return { type: "scroll", top: 0, left: 0, right: 0, data: names, textStyle: { color: variable("--text"), fontSize: 12 }, pageTextStyle: { color: variable("--dim") }, pageIconColor: variable("--accent"), pageIconInactiveColor: variable("--line"), padding: [3, 0], itemWidth: 18, itemHeight: 14 };
}

/** Names that are short, escaped and not twice the same. */
export function distinct(names) {
  const seen = new Map();
  return names.map((name) => {
    const short = cut(name, 36);
    const times = (seen.get(short) ?? 0) + 1;
    seen.set(short, times);
    return times > 1 ? short + " (" + times + ")" : short;
  });
}
