// What it says now: all questions of the evaluation with the answer before and after. One that is opened is told whole.

import { answerOf, mark, tagged, verdict } from "./answer.js";
import { card, cut, escaped, fill, h, inOrder, name, nothing, pictures, reselect, term, whole } from "../dom.js";
import { ask } from "./net.js";

const KINDS = [["", "all"], ["became-right", "became right"], ["became-wrong", "became wrong"], ["stays-right", "right both times"], ["stays-wrong", "wrong both times"]];

const kindOf = ({ before, now }) => (now >= 1 ? (before >= 1 ? "stays-right" : "became-right") : before >= 1 ? "became-wrong" : "stays-wrong");

export class Learned {
  constructor(section, keep) {
    this.keep = keep;
    this.nodeSelect = h("span");
    this.lead = h("p", { class: "lead" });
    this.filter = h("div", { class: "chips", role: "group", "aria-label": "Which questions" });
    this.list = h("ol", { class: "pairs" });
    const told = card("What does it say now?", [this.nodeSelect], this.lead, this.filter, this.list);
    fill(section, told);
  }

  async update({ id, summary, kept }) {
    const nodes = summary.nodes.map((node) => node.name);
    const node = nodes.includes(kept.node) ? kept.node : nodes[0] ?? ""; // the best one
    reselect(this.nodeSelect, "node", inOrder(nodes).map((each) => [each, each]), node, (value) => this.choose({ node: value, question: "" }));
    this.choose = (change) => { this.keep(change); this.update({ id, summary, kept: { ...kept, ...change } }); };
    const question = /^[0-9a-f]{8}$/.test(kept.question ?? "") ? kept.question : "";
    const story = node ? await ask(`runs/${id}/story`, { node, question }) : null;
    const key = JSON.stringify([node, story, kept]);
    if (key === this.told) return;
    this.told = key;
    this.tell(node, story, kept, question);
  }

  tell(node, story, kept, question) {
    const none = !story?.questions.length;
    this.lead.hidden = this.filter.hidden = none;
    if (none) {
      fill(this.list, nothing(node ? "No held-out question has been answered yet. A run asks some before round 1 and again after every few rounds." : "No node has finished a round yet. The first one appears here as soon as it comes."));
      return;
    }
    const all = story.questions, right = (field) => all.filter((each) => each[field] >= 1).length;
    const count = (kind) => all.filter((each) => !kind || kindOf(each) === kind).length;
    fill(this.lead, "Of ", h("b", {}, `${all.length} questions`), " that it never practised, ", name(node), " now answers ", h("b", {}, `${right("now")} right`), story.rounds.length > 1 ? [`, ${right("before")} before.`] : " (before any training).", " ", term("held-out questions"));
    const wanted = KINDS.some(([kind]) => kind && kind === kept.kind) ? kept.kind : "";
    const focused = document.activeElement?.dataset?.focus;
    fill(this.filter, KINDS.filter(([kind]) => !kind || count(kind)).map(([kind, text]) =>
      h("button", { type: "button", class: "chip", "data-focus": "kind" + kind, "aria-pressed": String(kind === wanted), onclick: () => this.choose({ kind }) }, `${text} ${count(kind)}`)));
    fill(this.list, all.filter((each) => !wanted || kindOf(each) === wanted).map((each) => this.pair(each, node, story, question)));
    if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  /** A question with its answers before and after, and whole if it is open. */
  pair(each, node, story, question) {
    const open = each.key === question;
    const side = (when, text, reward) => h("div", { class: "side-" + when }, h("span", { class: "when" }, when), mark(reward), h("span", { class: "cut" }, tagged(cut(text, 200)).length ? tagged(cut(text, 200)) : "(nothing)"));
    return h("li", { class: "pair" + (open ? " open" : "") },
      h("button", { type: "button", class: "link", "data-focus": each.key, "aria-expanded": String(open), onclick: () => this.choose({ question: open ? "" : each.key }) },
        h("span", { class: "task" }, cut(each.task)), h("span", { class: "cut" }, cut(each.question.replace(/\s+/g, " "), 200))),
      side("before", each.said_before, each.before), side("now", each.said_now, each.now),
      open && h("div", { class: "story" }, this.course(each, story)));
  }

  course(chosen, { answers, evaluations, rounds }) {
    const steps = folded(answers).map((step) => ({ ...step, turn: step.first === chosen.first_right }));
    const at = steps.findIndex((step) => step.turn);
    const items = steps.map((step, place) => ({ near: place === 0 || place === steps.length - 1 || Math.abs(place - at) < 2, item: said(step) }));
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
      const row = h("li", {}, h("button", { type: "button", class: "link", onclick: () => row.replaceWith(...each.gap) }, `${each.gap.length} more answers`));
      return row;
    });
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
