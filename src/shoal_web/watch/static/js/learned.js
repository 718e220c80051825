// What changed: the same held-out questions over rounds, what was trained on just before, and what the swarm gave.

import { answerOf, verdict } from "./answer.js";
import { Chart } from "./charts.js";
import { askSpread, drawCurves } from "./curves.js";
import { card, cut, escaped, fill, fixed, h, listing, name, nothing, percent, pictures, reselect, whole } from "./dom.js";
import { ask } from "./net.js";

/** What a chart of held-out pass@1 shows. */
export function heldOutNote(series) {
  const bases = series.some(({ look }) => look === "base");
  return "Right answers to questions that are never trained on." + (bases ? " Blind: always the commonest answer of the task. Shuffled: the nodes' answers, scored against other questions. Only what lies above both needs the question." : "");
}
const TASK_NOTE = "Held-out pass@1 on the questions of one task.";
export const BASES = [["eval/blind", "blind"], ["eval/shuffled", "shuffled"]];

const MAKERS = 20; // that are listed

export class Learned {
  constructor(section, keep) {
    this.keep = keep;
    this.nodeSelect = h("span");
    this.summary = h("p", { class: "lead" });
    this.questions = h("div", { class: "questions" });
    this.story = h("div", { class: "story" });
    this.split = h("div", { class: "split" }, this.questions, this.story);
    const told = card("The same questions over time", [this.nodeSelect], this.summary, this.split);
    this.curve = new Chart("Held-out pass@1", { note: heldOutNote([]) });
    this.gave = h("div", { class: "board" });
    this.gaveCard = card("What the swarm gave", null, this.gave);
    this.taskSelect = h("span");
    this.task = new Chart("One task over time", { controls: [this.taskSelect], note: TASK_NOTE });
    told.classList.add("wide");
    this.task.element.classList.add("wide");
    fill(section, h("div", { class: "grid" }, told, this.curve.element, this.gaveCard, this.task.element));
  }

  async update({ id, summary, kept }) {
    const nodes = summary.nodes.map((node) => node.name);
    const node = nodes.includes(kept.node) ? kept.node : nodes[0] ?? ""; // the best one
    const sorted = [...nodes].sort();
    reselect(this.nodeSelect, "node", sorted.map((each) => [each, each]), node, (value) => this.choose({ node: value, question: "" }));
    this.choose = (change) => { this.keep(change); this.update({ id, summary, kept: { ...kept, ...change } }); };
    const question = /^[0-9a-f]{8}$/.test(kept.question ?? "") ? kept.question : "";
    const [story, graph, spread] = await Promise.all([node ? ask(`runs/${id}/story`, { node, question }) : null, ask(`runs/${id}/graph`), askSpread(id, "eval/pass@1", 0, BASES)]);
    this.tell(node, story);
    this.curve.note.textContent = heldOutNote(spread.series);
    drawCurves(this.curve, spread.series, { share: true, what: "held-out pass@1", empty: "No evaluation yet: the first one comes before round 1." });
    this.gains(summary.nodes.find((each) => each.name === node), graph.edges.filter((each) => each.node === node));
    await this.overTime(id, summary, kept.task, story);
  }

  tell(node, story) {
    const key = JSON.stringify([node, story]);
    if (key === this.told) return;
    this.told = key;
    const none = !story?.questions.length;
    this.summary.hidden = this.questions.hidden = none;
    this.split.classList.toggle("none", none);
    if (none) {
      fill(this.story, nothing(node ? "No held-out question has been answered yet. A run asks some before round 1 and again after every few rounds, and keeps the answers to a few." : "No node has finished a round yet. The first one appears here as soon as it comes."));
      return;
    }
    const marks = (at) => story.questions.filter((each) => each.marks.at(at) >= 1).length;
    const [first, last] = [story.rounds[0], story.rounds.at(-1)];
    fill(this.summary, name(node), ` is asked the same ${story.questions.length} held-out questions in each evaluation. `,
      h("b", {}, `${marks(0)} right in round ${whole(first)}`), last > first && [", ", h("b", {}, `${marks(-1)} in round ${whole(last)}`)], ". Which ones are kept does not depend on the answers.");
    const focused = this.questions.contains(document.activeElement);
    fill(this.questions, story.questions.map((each) => this.question(each, story)));
    if (focused) this.questions.querySelector("[aria-pressed=true]")?.focus();
    const chosen = story.questions.find((each) => each.key === story.chosen);
    fill(this.story, this.course(node, chosen, story));
  }

  /** A question with a mark for each evaluation. */
  question(each, { chosen, rounds }) {
    const right = each.marks.filter((mark) => mark >= 1).length;
    const kind = (mark) => (mark === null ? "" : mark >= 1 ? "good" : mark > 0 ? "part" : "bad");
    return h("button", { type: "button", class: "asked", "aria-pressed": String(each.key === chosen), onclick: () => { this.choose({ question: each.key }); if (innerWidth <= 760) this.story.scrollIntoView(); } },
      h("span", { class: "task" }, cut(each.task)), h("span", { class: "cut" }, cut(each.question.replace(/\s+/g, " "), 200)),
      h("span", { class: "strip", role: "img", "aria-label": `right in ${right} of ${rounds.length} evaluations` }, each.marks.map((mark) => h("i", { class: kind(mark) }))));
  }

  course(node, chosen, { answers, before, evaluations, rounds }) {
    const steps = folded(answers).map((step) => ({ ...step, turn: step.first === chosen.first_right }));
    const at = steps.findIndex((step) => step.turn);
    const items = steps.map((step, place) => ({ near: place === 0 || place === steps.length - 1 || Math.abs(place - at) < 2, item: [step.turn && before && this.justBefore(node, chosen, before), said(step)] }));
    const hidden = items.filter(({ near }) => !near).length;
    return [
      pictures(chosen.pictures), h("p", { class: "ask" }, escaped(chosen.question.trim())),
      chosen.answer !== null && h("p", { class: "note" }, "Right answer: ", h("b", {}, cut(chosen.answer, 200)), "."),
      h("ol", { class: "course" }, hidden > 1 ? this.shortened(items) : items.map(({ item }) => item)),
      chosen.first_right === null && h("p", { class: "note" }, `Not right yet, in ${whole(evaluations)} evaluations.`),
      rounds.length < evaluations && h("p", { class: "note" }, `${rounds.length} of ${whole(evaluations)} evaluations are shown.`),
    ];
  }

  /** Without the answers in between, until they are asked for. */
  shortened(items) {
    const list = [];
    for (const { near, item } of items) {
      if (near) list.push(item);
      else if (list.at(-1)?.gap) list.at(-1).gap.push(item);
      else list.push({ gap: [item] });
    }
    return list.map((each) => {
      if (!each.gap) return each;
      const row = h("li", {}, h("button", { type: "button", class: "link", onclick: () => row.replaceWith(...each.gap.flat().filter(Boolean)) }, `${each.gap.length} more answers`));
      return row;
    });
  }

  /** What the node trained on between the last wrong evaluation and the first right one. It says when, not why. */
  justBefore(node, chosen, { after, until, makers, last }) {
    const all = makers.reduce((sum, each) => sum + each.rollouts, 0);
    const rounds = after + 1 === until ? `round ${whole(until)}` : `rounds ${whole(after + 1)} to ${whole(until)}`;
    if (!all) return h("li", { class: "between" }, `In ${rounds} it trained on no rollout of ${cut(chosen.task)}.`);
    const list = makers.slice(0, 5).flatMap((each, at) => [at ? ", " : "", `${whole(each.rollouts)} of `, each.peer ? name(each.maker) : "its own"]);
    return h("li", { class: "between" },
      h("p", {}, `Just before, in ${rounds}, it trained on ${whole(all)} rollouts of ${cut(chosen.task)}: `, list, makers.length > 5 && ` and ${makers.length - 5} others`, "."),
      last && h("p", {}, "One of the last, in round " + whole(last.round) + ", was ", last.peer ? [name(last.maker), "'s"] : "its own", last.question === undefined ? [`, with a mean reward of ${fixed(last.reward)}. `, "Its text is in its maker's folder."] :
        [": ", h("span", { class: "quote" }, cut(last.question.replace(/\s+/g, " ").trim(), 160)), " → ", h("span", { class: "quote" }, cut(last.completion, 80) || "(empty)"), " ", verdict(last.best), " ",
          h("a", { href: this.rolloutAddress(last) }, "See all its answers")]));
  }

  rolloutAddress({ part, row }) {
    const given = new URLSearchParams(location.hash.slice(1));
    return "#" + new URLSearchParams({ view: "rollouts", run: given.get("run") ?? "", open: `${part}.${row}` });
  }

  /** Against the node's own past. What it would be without the swarm, one run cannot show. */
  gains(node, edges) {
    if (!node) { fill(this.gave, nothing("No node has finished a round yet.")); return; }
    this.gaveCard.querySelector("h2").replaceChildren("What the swarm gave ", name(node.name));
    const makers = edges.sort((a, b) => a.peer - b.peer); // its own first
    const count = (peer) => makers.filter((each) => each.peer === peer).reduce((sum, each) => sum + each.rollouts, 0);
    const peers = count(true), all = peers + count(false);
    const columns = [
      { title: "trained on rollouts of", get: (each) => (each.peer ? name(each.maker) : "its own") },
      { title: "rollouts", number: true, get: (each) => whole(each.rollouts) },
      { title: "mean reward", number: true, get: (each) => fixed(each.reward) },
      { title: "share of the gradient", number: true, get: (each) => percent(each.gradient, 0) },
    ];
    const past = node.held_out !== null && ["Its answers to held-out questions went from ", h("b", {}, percent(node.held_out_first)), " right to ", h("b", {}, percent(node.held_out)),
      node.blind !== null && ` (blind answers: ${percent(node.blind)})`, "."];
    if (!all && !past) { fill(this.gave, nothing("It has neither been evaluated nor trained on anything yet.")); return; }
    fill(this.gave, h("p", { class: "lead" }, past || "Not evaluated yet.", all > 0 && [" Of the ", h("b", {}, whole(all)), " rollouts it trained on, ", h("b", {}, `${whole(peers)} (${percent(peers / all, 0)})`), " were made by peers."]),
      all ? listing("What the node trained on", makers.length > MAKERS ? `Of ${makers.length} makers, those with most rollouts.` : "", columns, makers.slice(0, MAKERS)) : nothing("It has trained on nothing yet."),
      h("p", { class: "note" }, "This is what it took from peers, not what it would be without them. For that, run the same again with --peers 0 and compare the two."));
  }

  async overTime(id, summary, kept, story) {
    const tasks = summary.metrics.filter((each) => each.startsWith("eval/pass@1/")).map((each) => each.slice(12));
    const own = story?.questions.find((each) => each.key === story.chosen)?.task;
    const task = [kept, own, tasks[0]].find((each) => tasks.includes(each));
    this.task.element.hidden = !task;
    if (!task) return;
    reselect(this.taskSelect, "task", tasks.map((each) => [each, each]), task, (value) => this.choose({ task: value }));
    const { series } = await askSpread(id, "eval/pass@1/" + task, 0, [["eval/blind/" + task, "blind"]]);
    this.task.note.textContent = TASK_NOTE + (series.some(({ look }) => look === "base") ? " Blind: answers that ignore the question." : "");
    drawCurves(this.task, series, { share: true, what: `held-out pass@1 on ${cut(task)}` });
  }
}

/** Equal answers one after another become one: {first, last, completion, reward}. */
function folded(answers) {
  const steps = [];
  for (const each of answers) {
    const before = steps.at(-1);
    if (before && before.completion === each.completion && before.reward === each.reward) before.last = each.round;
    else steps.push({ ...each, first: each.round, last: each.round });
  }
  return steps;
}

function said(step) {
  const when = step.first === step.last ? `Round ${whole(step.first)}` : `Rounds ${whole(step.first)} to ${whole(step.last)}`;
  return h("li", { class: step.turn ? "turn" : null }, h("div", { class: "when" }, when, verdict(step.reward), step.turn && h("b", {}, "right for the first time")), answerOf(step));
}
