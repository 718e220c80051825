// Who learns from whom, peers, and what was refused.

import { Chart } from "./charts.js";
import { bytes, card, cut, fill, fullName, h, inOrder, listing, name, nothing, percent, reselect, span, term, whole } from "../dom.js";
import { drawGraph } from "./graph.js";
import { ask } from "./net.js";

const MAKERS = 20; // that are listed

export class Swarm {
  constructor(section) {
    this.nodeSelect = h("span");
    this.contributions = h("div", { class: "board" });
    this.gainsCard = card("Does the swarm help?", [this.nodeSelect], this.contributions);
    this.graph = new Chart("Who learns from whom", {
      tall: true, note: "An arrow points from a maker to a node that trained on its rollouts. Wider arrows stand for more rollouts.",
    });
    this.shapes = h("p", { class: "note" });
    this.graph.data.before(this.shapes);
    this.link = h("div");
    this.peers = h("div");
    this.defence = h("div");
    this.linkCard = card("This node's link", null, this.link);
    this.peersCard = card("Peers", null, this.peers);
    this.defenceCard = card("Refusals and attacks", null, this.defence);
    for (const each of [this.gainsCard, this.peersCard]) each.classList.add("wide");
    this.aside = h("div", { class: "stack" }, this.linkCard, this.defenceCard);
    this.aside.hidden = true; // until it is known what they show
    fill(section, h("div", { class: "grid" }, this.gainsCard, this.graph.element, this.aside, this.peersCard));
  }

  async update(context) {
    this.again = () => this.update(context);
    const { id, summary } = context;
    const own = summary.kind !== "swarm"; // what only a node's own folder has
    if (!own) {
      this.aside.hidden = true;
      this.graph.element.classList.add("wide");
    }
    const graph = await ask(`runs/${id}/graph`);
    const edges = graph.edges.filter((edge) => edge.peer);
    const nodes = summary.nodes.map((node) => node.name);
    this.node = nodes.includes(this.node) ? this.node : nodes[0] ?? "";
    this.shapes.textContent = drawGraph(this.graph, edges, graph.more, summary, own ? this.node : null);
    this.showGains(summary, nodes, graph.edges, own);
    this.showLink(summary.swarm);
    this.showPeers(summary.swarm);
    if (own) this.showDefence(summary);
  }

  /** Contributions: from whom, how much of the gradient, and what of. */
  showGains(summary, nodes, edges, own) {
    reselect(this.nodeSelect, "node", inOrder(nodes).map((each) => [each, each]), this.node, (value) => { this.node = value; this.again(); });
    this.gainsCard.hidden = !own;
    if (!own) return;
    const made = edges.filter((each) => each.node === this.node).sort((a, b) => (b.gradient ?? 0) - (a.gradient ?? 0) || b.rollouts - a.rollouts);
    const peers = made.filter((each) => each.peer), sum = (all, field) => all.reduce((total, each) => total + (each[field] ?? 0), 0);
    const line = summary.nodes.find((each) => each.name === this.node);
    if (!made.length) { fill(this.contributions, nothing(this.node ? "It has not learned from anybody yet: that takes a round or two." : "No node has finished a round yet.")); return; }
    const known = made.some((each) => each.gradient !== null);
    const share = known ? 1 - (made.find((each) => !each.peer)?.gradient ?? 0) : // of a large swarm the lightest edges are left out
       sum(peers, "rollouts") / sum(made, "rollouts");
    const shown = new Map((summary.swarm?.admission.peers ?? []).map((peer) => [peer.name, peer.display_name]));
    const columns = [
      { title: "from", get: (each) => (each.peer ? fullName(each.maker, shown.get(each.maker)) : "its own answers") },
      { title: "contribution", number: true, get: (each) => percent(each.gradient) },
      { title: "rollouts", number: true, get: (each) => whole(each.rollouts) },
      { title: "what it taught", get: (each) => (each.tasks ?? []).map((task) => cut(task, 30)).join(", ") || "–" },
    ];
    fill(this.contributions,
      h("p", { class: "lead" }, peers.length ? [h("b", {}, percent(share, 0)), " of what ", name(this.node), " learned came from ", peers.length > 1 && `${whole(peers.length)} others, most of it from `, name(peers[0].maker), ". "] : [name(this.node), " has learned from its own answers alone. "],
        line?.held_out !== null && line?.held_out !== line?.held_out_first && `It was right on ${percent(line.held_out_first)} of questions that it never practised, and is on ${percent(line.held_out)} now. `,
        term("contribution", "learning")),
      listing("Contributions", "", columns, made.slice(0, MAKERS)),
      h("p", { class: "note" }, (made.length > MAKERS ? `Of ${made.length} makers, the ${MAKERS} that gave most. ` : "") + "A contribution is a share of the gradient, over all rounds. What it would be without the swarm, one run cannot tell: run the same again with --peers 0 and compare."));
  }

  showLink(swarm) {
    this.linkCard.hidden = !swarm;
    if (!swarm) return;
    const flow = (meter) => `${whole(meter.messages)} (${bytes(meter.bytes)})`;
    const state = !swarm.running ? `not running: last seen ${span(swarm.age)} ago` : swarm.note || `connected, ${swarm.links} link${swarm.links === 1 ? "" : "s"}`;
    const facts = [
      ["node", fullName(swarm.name, swarm.display_name)], ["swarm", h("span", {}, name(swarm.swarm), swarm.private ? " (private)" : "")], ["state", cut(state, 200)],
      ...Object.entries(swarm.limited_by).slice(0, 20).map(([who, found]) => [cut(who, 40), `says that it does not learn from this node: ${limit(found)}`]),
      ["peers", `${whole(swarm.peers)} there, listening to ${whole(swarm.neighbours)}`],
      ["in", flow(swarm.received)], ["out", flow(swarm.sent)],
      ["pool", `${whole(swarm.pool.rollouts)} rollouts, ${whole(swarm.pool.live)} live; J = ${swarm.pool.wanted}`], ["admitted", whole(swarm.admission.admitted)],
    ];
    fill(this.link, h("table", {}, h("tbody", {}, facts.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value))))));
  }

  showPeers(swarm) {
    this.peersCard.hidden = !swarm;
    if (!swarm) return;
    const columns = [
      { title: "peer", get: (peer) => h("span", { title: cut(peer.id, 64) }, fullName(peer.name, peer.display_name)) },
      { title: "is", get: (peer) => ({ human: "a person", program: "a program" })[peer.kind] ?? "a model" },
      { title: "admitted", number: true, get: (peer) => whole(peer.admitted) },
      { title: "taken out", number: true, get: (peer) => percent(swarm.shortened[peer.name] ?? null, 0) },
      { title: "limited", get: (peer) => limit(swarm.limited[peer.name]) },
      { title: "last seen", number: true, get: (peer) => span(Date.now() / 1000 - peer.last) + " ago" },
      { title: "refused", get: (peer) => (peer.muted > 0 ? `muted for ${span(peer.muted)}; ` : "") + counted(peer.refused) },
    ];
    fill(this.peers, swarm.admission.peers.length ? listing("Peers", "Nodes that this node has heard, the latest first. What a peer is, it says itself. Taken out: the share of its right answers that they did not need and this node does not say, lately. Limited: this node does not learn from it for that many rounds, as that share of the words in its right answers was not needed and was not in its wrong ones.", columns, swarm.admission.peers) : nothing("Nobody has joined yet. On another machine:", `shoal join HOST:PORT --swarm ${swarm.swarm}`));
  }

  showDefence({ nodes, swarm }) {
    const columns = [
      { title: "node", get: (node) => name(node.name) },
      { title: "refused", number: true, get: (node) => whole(node.refused) },
      { title: "taken out", number: true, get: (node) => percent(node.shortened, 0) },
      { title: "steps skipped", number: true, get: (node) => whole(node.skipped) },
    ];
    const quiet = !nodes.some((node) => node.refused || node.shortened || node.skipped);
    this.aside.hidden = quiet && !swarm;
    this.graph.element.classList.toggle("wide", quiet && !swarm);
    const parts = quiet ? [] : [listing("Refusals by node", "Peers' rollouts refused so far; the share of the text of peers' right answers that was taken out before they taught, lately; updates that were skipped because they were not finite.", columns, nodes.slice(0, 200))];
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

function limit(found) {
  return found ? `${whole(found[0])} rounds more (${percent(found[1], 0)} of words)` : "–";
}

function counted(counts) {
  return Object.entries(counts).map(([reason, count]) => `${cut(reason)} ${count}`).join(", ") || "–";
}
