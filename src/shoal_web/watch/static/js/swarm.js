// Who learns from whom, peers, and what was refused.

import { Chart } from "./charts.js";
import { askSpread, drawCurves } from "./curves.js";
import { bytes, card, cut, fill, fixed, fullName, h, listing, name, nothing, percent, select, span, whole } from "./dom.js";
import { drawGraph, shapesTold } from "./graph.js";
import { ask } from "./net.js";

export class Swarm {
  constructor(section) {
    this.rounds = "0";
    this.select = select("rounds", [["0", "all"], ["20", "last 20"], ["100", "last 100"], ["500", "last 500"]], this.rounds, (value) => { this.rounds = value; this.again?.(); });
    this.graph = new Chart("Who learns from whom", {
      tall: true, note: "An arrow points from a maker to a node that trained on its rollouts. Wider arrows stand for more rollouts.",
      controls: [this.select],
    });
    this.shapes = h("p", { class: "note" });
    this.graph.data.before(this.shapes);
    this.refused = new Chart("Refused, by node");
    this.alarm = h("p", { class: "alarm", hidden: true });
    this.link = h("div");
    this.peers = h("div");
    this.defence = h("div");
    this.linkCard = card("This node's link", null, this.link);
    this.peersCard = card("Peers", null, this.peers);
    this.defenceCard = card("Refusals and attacks", null, this.defence);
    this.peersCard.classList.add("wide");
    this.aside = h("div", { class: "stack" }, this.linkCard, this.defenceCard);
    fill(section, this.alarm, h("div", { class: "grid" }, this.graph.element, this.aside, this.peersCard, this.refused.element));
    this.refused.element.classList.add("wide");
  }

  async update(context) {
    this.again = () => this.update(context);
    const { id, summary } = context;
    const own = summary.kind !== "swarm"; // what only a node's own folder has
    this.select.hidden = this.refused.element.hidden = this.aside.hidden = !own;
    this.graph.element.classList.toggle("wide", !own);
    const [graph, refused] = await Promise.all([
      ask(`runs/${id}/graph`, { rounds: this.rounds }), own && askSpread(id, "rollouts/refused"),
    ]);
    const edges = graph.edges.filter((edge) => edge.peer);
    this.shapes.textContent = shapesTold(drawGraph(this.graph, edges, graph.more, summary));
    this.showAlarm(summary);
    this.showLink(summary.swarm);
    this.showPeers(summary.swarm, edges);
    if (!own) return;
    this.refused.element.hidden = !refused.series.length;
    drawCurves(this.refused, refused.series, { what: "rollouts refused so far", empty: "This run does not record refusals." });
    this.showDefence(summary);
  }

  showAlarm({ swarm }) {
    const words = [];
    const muted = swarm?.admission.peers.filter((peer) => peer.muted > 0).length ?? 0;
    if (muted) words.push(`${muted} peer${muted === 1 ? " is" : "s are"} muted for breaking rules.`);
    if (swarm?.faults) words.push(`${swarm.faults} errors of shoal itself: see its log.`);
    this.alarm.hidden = !words.length;
    this.alarm.textContent = words.join(" ");
  }

  showLink(swarm) {
    this.linkCard.hidden = !swarm;
    if (!swarm) return;
    const flow = (meter) => `${whole(meter.messages)} (${bytes(meter.bytes)})`;
    const state = !swarm.running ? `not running: last seen ${span(swarm.age)} ago` : swarm.note || `connected, ${swarm.links} link${swarm.links === 1 ? "" : "s"}`;
    const facts = [
      ["node", fullName(swarm.name, swarm.display_name)], ["swarm", h("span", {}, name(swarm.swarm), swarm.private ? " (private)" : "")], ["state", cut(state, 200)],
      ["peers", `${whole(swarm.peers)} there, listening to ${whole(swarm.neighbours)}`],
      ["in", flow(swarm.received)], ["out", flow(swarm.sent)],
      ["pool", `${whole(swarm.pool.rollouts)} rollouts, ${whole(swarm.pool.live)} live; J = ${swarm.pool.wanted}`], ["admitted", whole(swarm.admission.admitted)],
    ];
    fill(this.link, h("table", {}, h("tbody", {}, facts.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))));
  }

  showPeers(swarm, edges) {
    this.peersCard.hidden = !swarm;
    if (!swarm) return;
    const shares = new Map(edges.map(({ maker, gradient }) => [maker, gradient]));
    const columns = [
      { title: "peer", get: (peer) => h("span", { title: cut(peer.id, 64) }, fullName(peer.name, peer.display_name)) },
      { title: "is", get: (peer) => ({ human: "a person", program: "a program" })[peer.kind] ?? "a model" },
      { title: "admitted", number: true, get: (peer) => whole(peer.admitted) },
      { title: "gradient share", number: true, get: (peer) => (shares.has(peer.name) ? percent(shares.get(peer.name)) : "–") },
      { title: "weight", number: true, get: (peer) => fixed(peer.weight) },
      { title: "last seen", number: true, get: (peer) => span(Date.now() / 1000 - peer.last) + " ago" },
      { title: "refused", get: (peer) => (peer.muted > 0 ? `muted for ${span(peer.muted)}; ` : "") + counted(peer.refused) },
    ];
    fill(this.peers, swarm.admission.peers.length ? listing("Peers", "Nodes that this node has heard, the latest first. What a peer is, it says itself.", columns, swarm.admission.peers) : nothing("Nobody has joined yet. On another machine:", `shoal join HOST:PORT --swarm ${swarm.swarm}`));
  }

  showDefence({ nodes, swarm }) {
    const columns = [
      { title: "node", get: (node) => name(node.name) },
      { title: "refused", number: true, get: (node) => whole(node.refused) },
      { title: "gated", number: true, get: (node) => percent(node.gated, 0) },
      { title: "steps skipped", number: true, get: (node) => whole(node.skipped) },
    ];
    const quiet = !nodes.some((node) => node.refused || node.gated || node.skipped);
    this.aside.hidden = quiet && !swarm;
    this.graph.element.classList.toggle("wide", quiet && !swarm);
    const parts = quiet ? [] : [listing("Refusals by node", "Peers' rollouts refused so far; the share of peers' successes that the gate left out; updates that were skipped because they were not finite.", columns, nodes.slice(0, 200))];
    if (swarm) {
      const times = new Map();
      for (const [reason, count] of [swarm.admission.refused, swarm.dropped].flatMap(Object.entries)) times.set(reason, (times.get(reason) ?? 0) + count);
      const reasons = [...times];
      const by = [
        { title: "reason", get: ([reason]) => cut(reason) },
        { title: "times", number: true, get: ([, count]) => whole(count) },
      ];
      parts.unshift(reasons.length ? listing("Refusals by reason", "Why messages of other nodes were refused (docs/concepts/security.md).", by, reasons) : h("p", { class: "note" }, "No message was refused."));
    }
    fill(this.defence, parts.flat());
  }
}

function counted(counts) {
  return Object.entries(counts).map(([reason, count]) => `${cut(reason)} ${count}`).join(", ") || "–";
}
