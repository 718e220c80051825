// Curves against rounds.

import { axis, colour, DASHES, distinct, legend, tooltip, variable } from "./charts.js";
import { fixed } from "../dom.js";
import { ask } from "./net.js";

/** Curves of a figure: the mean of the nodes, if there is one, bold above each node's own, and `bases`, other figures drawn as dashed lines. */
export async function askSpread(id, metric, smooth = 0, bases = []) {
  const one = (by, metric, smooth) => ask(`runs/${id}/curve`, { metric, by, smooth });
  const [nodes, mean, ...lines] = await Promise.all([one("node", metric, smooth), one("mean", metric, smooth), ...bases.map(([key]) => one("mean", key, 0))]);
  const many = nodes.series.length > 1, own = mean.series.length ? "faint" : "";
  const bold = many ? mean.series.map((each) => ({ ...each, name: "mean of the nodes", look: "bold" })) : nodes.series.map((each) => ({ ...each, look: "bold" }));
  const dashed = lines.flatMap(({ series }, at) => series.map((each) => ({ ...each, name: bases[at][1], look: "base" })));
  return [...(many ? nodes.series.map((each) => ({ ...each, look: own })) : []), ...dashed, ...bold];
}

/** How a curve of a kind is drawn. */
function lookOf(look, index) {
  if (look === "bold") return { color: variable("--accent"), lineStyle: { width: 3.5, type: "solid" }, z: 5 };
  if (look === "faint") return { color: variable("--dim"), lineStyle: { width: 1, type: "solid", opacity: 0.5 }, symbol: "none", z: 2 };
  if (look === "base") return { color: variable("--text"), lineStyle: { width: 1.5, type: index ? "dotted" : "dashed" }, symbol: "none", z: 3 };
  return {};
}

/** Lines in the legend: solid, and those of the bases, the first dashed and the second dotted. */
const LINE = "path://M0,5h20v3h-20z";
const BASE_LINES = ["path://M0,5h5v3h-5zM8,5h5v3h-5zM16,5h5v3h-5z", "path://M0,5h2v3h-2zM5,5h2v3h-2zM10,5h2v3h-2zM15,5h2v3h-2z"];
const basesBefore = (series, index) => series.slice(0, index).filter((other) => other.look === "base").length;
const iconOf = (series, index) => (series[index].look === "base" ? BASE_LINES[basesBefore(series, index) && 1] : series[index].look && LINE);
const TOLD = 10; // lines of a tooltip

const BANDS = 4; // curves, up to which their intervals are drawn

/** Curves against rounds. `series`: [{name, points: [[round, value, low, high], ...]}], the last two if it has intervals. */
export function drawCurves(chart, series, { share = false, what = "value", empty = "No figures yet." } = {}) {
  chart.fold(series.length > 0 && series.every((each) => each.points.every((point) => point[1] === 0)));
  const names = distinct(series.map((each) => each.name));
  const format = (value) => (value === null || value === undefined ? "–" : share ? (100 * value).toFixed(1) + " %" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(4)).toString());
  const lasts = series.map((each, at) => ({ name: names[at], last: each.points.at(-1)?.[1], first: each.points[0]?.[1] }));
  const text = "Curves of " + what + " against rounds. " + lasts.slice(0, 12).map((each) => each.name + " from " + format(each.first) + " to " + format(each.last)).join("; ") + ".";
  const rounds = [...new Set(series.flatMap((each) => each.points.map(([round]) => round)))].sort((a, b) => a - b);
  const step = Math.ceil(rounds.length / 200);
  const shown = rounds.filter((_, at) => at % step === 0 || at === rounds.length - 1);
  const at = series.map((each) => new Map(each.points.map((point) => [point[0], point])));
  const asText = (point) => (point ? format(point[1]) + (point.length > 3 ? ` (${format(point[2])} to ${format(point[3])})` : "") : "–");
  const columns = [{ title: "round", number: true, get: (round) => fixed(round, 0) },
    ...names.map((name, index) => ({ title: name, number: true, get: (round) => asText(at[index].get(round)) }))];
  const drawn = series.length <= BANDS ? series.flatMap(band) : [];
  return chart.draw((small) => ({
    legend: legend(names.map((name, index) => ({ name, icon: iconOf(series, index) })).filter((_, index) => series[index].look !== "faint")),
    grid: { left: 8, right: 22, top: 34, bottom: 8, containLabel: true },
    tooltip: tooltip({ trigger: "axis", order: "valueDesc", formatter: (found) => told(found, series, names, format) }),
    xAxis: axis({ type: "value", min: ({ min, max }) => (min < max / 4 ? 0 : Math.floor(min)), max: ({ max }) => Math.ceil(max), minInterval: 1, splitNumber: small ? 4 : 8, splitLine: { show: false }, axisPointer: { label: { formatter: ({ value }) => "round " + Math.round(value) } } }),
    yAxis: axis({ type: "value", scale: !share, axisLabel: { color: variable("--dim"), formatter: (value) => (share ? Number((100 * value).toFixed(1)) + " %" : format(value)) } }),
    dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: "shift", preventDefaultMouseMove: false }],
    series: [...drawn, ...series.map((each, index) => {
      const { lineStyle, ...look } = lookOf(each.look, basesBefore(series, index));
      return {
        type: "line", name: names[index], data: each.points.map(([x, y]) => [x, y]), showSymbol: each.points.length < 25, symbolSize: 5,
        color: colour(index), emphasis: { focus: "series" }, ...look,
        lineStyle: { width: series.length < 4 ? 2.5 : 1.6, type: DASHES[Math.floor(index / 8) % 3], ...lineStyle },
      };
    })],
  }), text, columns, shown, series.some((each) => each.points.length) ? "" : empty);
}

/** The lines of a tooltip: the bold and the dashed curves first, then the highest of the others. */
function told(found, series, names, format) {
  const at = found[0]?.axisValue ?? 0;
  const lines = found.filter((each) => names.includes(each.seriesName) && each.value?.[1] !== undefined)
    .map((each) => ({ name: each.seriesName, value: each.value[1], look: series[names.indexOf(each.seriesName)].look }));
  const rank = ({ look }) => ["bold", "base"].indexOf(look) + 1 || 3;
  lines.sort((a, b) => rank(a) - rank(b) || b.value - a.value);
  const more = lines.length > TOLD ? [`and ${lines.length - TOLD} more`] : [];
  return ["round " + Math.round(at), ...lines.slice(0, TOLD).map(({ name, value }) => `${format(value)}  ${name}`), ...more].join("\n");
}

/** The interval of a curve that has one, as ECharts has bands: an unseen line, and upon it an area. */
function band({ points }, index) {
  if (!points.some((point) => point.length > 3)) return [];
  const unseen = { type: "line", stack: "band" + index, symbol: "none", silent: true, tooltip: { show: false }, lineStyle: { opacity: 0 }, emphasis: { disabled: true }, color: colour(index) };
  return [
    { ...unseen, data: points.map(([x, , low]) => [x, low]) },
    { ...unseen, data: points.map(([x, , low, high]) => [x, high - low]), areaStyle: { opacity: 0.14 } },
  ];
}
