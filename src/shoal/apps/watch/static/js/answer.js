// How an answer is shown. All answers are texts today: a conversation, a picture or a program gets its case here.

import { badge, escaped, h } from "./dom.js";

/** What somebody answered, as plain characters. */
export function answerOf({ completion }) {
  return h("pre", { class: "text" }, escaped(completion) || "(empty)");
}

/** The same in a sign, for lists. */
export function mark(reward) {
  if (reward > 0 && reward < 1) return badge(reward);
  return h("span", { class: "mark " + (reward >= 1 ? "good" : "bad") }, h("span", { "aria-hidden": "true" }, reward >= 1 ? "✓" : "✗"), h("span", { class: "hidden" }, reward >= 1 ? "right" : "wrong"));
}

/** Right, wrong or in part, in words too: no colour alone says it. */
export function verdict(reward) {
  if (reward >= 1) return h("span", { class: "badge good" }, "✓ right");
  return reward <= 0 ? h("span", { class: "badge bad" }, "✗ wrong") : badge(reward);
}
