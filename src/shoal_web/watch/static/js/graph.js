// Who learns from whom, as a graph. Nodes that learn, people and programs have a shape each.

import { colour, distinct, tooltip, variable } from "./charts.js";
import { cut, fixed, inOrder, name, whole } from "../dom.js";

const KINDS = {
  node: { shape: "circle", sign: "●", means: "a node that learns" },
  human: { shape: "triangle", sign: "▲", means: "a person" },
  program: { shape: "diamond", sign: "◆", means: "answers and does not learn" },
  silent: { shape: "emptyCircle", sign: "○", means: "peers say they learned from it; it says nothing itself" },
};
const ARROWS = 400; // that are drawn
const MANY = 12; // nodes, from which on the arrows to one of them stand out

/** What each of `names` is, from what the run knows of it. */
function kindsOf(names, edges, { kind, nodes, swarm }) {
  const own = new Map(nodes.map((node) => [node.name, node]));
  const peers = new Map((swarm?.admission.peers ?? []).map((peer) => [peer.name, peer.kind === "model" ? "node" : peer.kind]));
  const learners = new Set(edges.map((edge) => edge.node)), known = nodes.some((node) => (node.learns ?? null) !== null);
  const of = (each) => {
    if (learners.has(each)) return "node";
    if (own.has(each)) return known && own.get(each).learns === null ? "program" : "node";
    return peers.get(each) ?? (kind === "swarm" ? "silent" : "node");
  };
  return names.map(of);
}

/** The shapes in sight and what they mean, if there are several. */
function shapesTold(kinds) {
  const seen = Object.keys(KINDS).filter((kind) => kinds.includes(kind));
  return seen.length < 2 ? "" : seen.map((kind) => `${KINDS[kind].sign} ${KINDS[kind].means}`).join(" · ");
}

/** Draws `edges` into a chart, those to the node `chosen` first where there are many, and gives what to say of the shapes on it, and why there is no arrow. */
export function drawGraph(chart, edges, more, summary, chosen) {
  const all = [...new Set([...summary.nodes.map((node) => node.name), ...(summary.swarm?.admission.peers ?? []).map((peer) => peer.name), ...edges.flatMap((edge) => [edge.maker, edge.node])])];
  const weight = new Map(all.map((node) => [node, 0]));
  const weigh = (edge) => edge.share ?? edge.rollouts; // of a live swarm a share: whoever says more weighs no more
  for (const edge of edges) weight.set(edge.maker, weight.get(edge.maker) + weigh(edge));
  const nodes = inOrder((summary.kind === "swarm" ? all : all.sort((a, b) => weight.get(b) - weight.get(a))).slice(0, 80));
  const kinds = kindsOf(nodes, edges, summary);
  const at = new Map(nodes.map((node, index) => [node, index]));
  const many = nodes.length > MANY, tiny = nodes.length > 3 * MANY, faint = (edge) => many && at.has(chosen) && edge.node !== chosen;
  const drawn = edges.filter((edge) => at.has(edge.maker) && at.has(edge.node));
  const shown = [...drawn.filter(faint).slice(0, ARROWS), ...drawn.filter((edge) => !faint(edge)).slice(0, ARROWS)];
  const names = distinct(nodes);
  const heaviest = Math.max(Number.MIN_VALUE, ...shown.map(weigh));
  const most = Math.max(Number.MIN_VALUE, ...weight.values());
  const columns = [
    { title: "learner", get: (edge) => name(edge.node) },
    { title: "learned from", get: (edge) => name(edge.maker) },
    { title: "rollouts", number: true, get: (edge) => whole(edge.rollouts) },
    ...(summary.kind === "swarm" ? [] : [
      { title: "live", number: true, get: (edge) => whole(edge.live) },
      { title: "mean reward", number: true, get: (edge) => fixed(edge.reward, 3) },
    ]),
  ];
  const strongest = shown.slice(0, 5).map((edge) => `${cut(edge.node)} took ${edge.rollouts} rollouts of ${cut(edge.maker)}`).join("; ");
  chart.draw((small, width, height) => ({
    tooltip: tooltip({ formatter: ({ data }) => data.text ?? "" }),
    series: [{
      type: "graph", layout: "none", roam: false,
      ...square(width, height, small ? 60 : 140, tiny && !small ? 160 : 90),
      edgeSymbol: ["none", "arrow"], edgeSymbolSize: [0, 8], emphasis: { focus: "adjacency" },
      label: { show: true, color: variable("--text"), backgroundColor: variable("--card"), padding: 1, fontSize: small || tiny ? 10 : 12, ...(tiny ? { backgroundColor: "transparent", fontSize: small ? 8 : 10, width: small ? 40 : 70, overflow: "truncate" } : {}), formatter: ({ data }) => names[Number(data.id)] ?? "" },
      lineStyle: { curveness: 0.18, opacity: 0.7 },
      data: [...CORNERS, ...nodes.map((node, index) => ({
        id: String(index), name: String(index), ...around(index, nodes.length, small, tiny), symbol: KINDS[kinds[index]].shape, symbolSize: (16 + 20 * Math.sqrt((weight.get(node) ?? 0) / most)) * (tiny ? 0.4 : 1), itemStyle: { color: colour(index) },
        text: `${names[index]}\n${KINDS[kinds[index]].means}` + (summary.kind === "swarm" ? "" : `\npeers learned from ${whole(weight.get(node))} of its rollouts`),
      }))],
      links: shown.map((edge) => ({
        source: String(at.get(edge.maker)), target: String(at.get(edge.node)), lineStyle: faint(edge) ? { color: variable("--dim"), width: 0.7, opacity: 0.15 } : { color: colour(at.get(edge.maker)), width: 0.7 + 5 * weigh(edge) / heaviest },
        symbol: faint(edge) ? ["none", "none"] : undefined,
        text: `${cut(edge.node)} learned from\n${cut(edge.maker)}: ${whole(edge.rollouts)} rollouts`,
      })),
    }],
  }), `A graph of ${nodes.length} nodes. ${strongest}${more || edges.length > ARROWS ? "; only the heaviest arrows are shown" : ""}.`, columns, edges,
  nodes.length > 1 ? "" : alone(summary));
  const told = shown.some(faint) ? `The arrows to ${cut(chosen)} stand out.` : "";
  return [shown.length || nodes.length < 2 ? "" : alone(summary), told, shapesTold(kinds)].filter(Boolean).join(" ");
}

/** Why there is no arrow, and what to do. */
function alone({ kind, nodes, swarm }) {
  if (kind === "swarm") return "Nobody has said whom it learned from yet. Nodes speak after each round.";
  if (swarm && !swarm.peers) return `Nobody has joined yet. On another machine: shoal join HOST:PORT --swarm ${swarm.swarm}`;
  if (nodes.length === 1 && !swarm) return "This run has one node, which learns alone: shoal run --nodes 4 makes a swarm of it.";
  return nodes.some((node) => node.learns === 0) ? "These nodes learn alone: peers = 0." : "No node has learned from another one yet: that takes a round or two.";
}

/** Where the node is on a circle, and its name outside of it. */
function around(index, count, small, tiny) {
  const angle = (2 * Math.PI * (index + 0.5)) / count - Math.PI / 2;
  const [x, y] = [Math.cos(angle), Math.sin(angle)];
  if (tiny) { // along the rays
    const right = x >= 0, turned = (-180 * angle) / Math.PI;
    return { x: 100 * x, y: 100 * y, label: { position: right ? "right" : "left", distance: -6, padding: right ? [0, 0, 0, 13] : [0, 13, 0, 0], rotate: right ? turned : turned - 180 } };
  }
  const above = small || count < 5 || Math.abs(x) < 0.3; // few names need no room at the sides
  return { x: 100 * x, y: 100 * y, label: { position: above ? (y < 0 ? "top" : "bottom") : x < 0 ? "left" : "right" } };
}

// Unseen nodes, so that the circle stays one whatever nodes are on it, and the square in the middle that they span.
const CORNERS = [-100, 100].map((at) => ({ id: "corner" + at, name: "corner" + at, x: at, y: at, symbolSize: 0, silent: true, label: { show: false } }));

function square(width, height, margin, free) {
  const side = Math.max(80, Math.min(width - 2 * margin, height - free));
  return { left: (width - side) / 2, top: (height - side) / 2, width: side, height: side };
}
