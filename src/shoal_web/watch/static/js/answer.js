// How an answer is shown: as plain characters, or a conversation.

import { badge, escaped, h } from "../dom.js";

/** What somebody answered, as plain characters. */
export function answerOf({ completion, conversation }) {
  if (conversation) return h("ol", { class: "talk" }, conversation.flatMap(([turn, observation]) => [
    h("li", { class: "policy" }, h("span", { class: "hidden" }, "policy: "), escaped(turn) || "(empty)"),
    observation && h("li", { class: "environment" }, h("span", { class: "hidden" }, "environment: "), escaped(observation)),
  ]));
  return h("pre", { class: "text" }, completion ? tagged(escaped(completion)) : "(empty)");
}

const TAGS = /<([a-z_]{1,20})>([\s\S]*?)<\/\1>/gi;

/** `text` with what stands between tags, such as <answer>6</answer>, under the tag's name. All of it stays text. */
export function tagged(text) {
  const parts = [];
  let from = 0;
  for (const { 0: all, 1: tag, 2: inside, index } of text.matchAll(TAGS)) {
    parts.push(text.slice(from, index), h("span", { class: "tagged" }, h("small", {}, tag), inside));
    from = index + all.length;
  }
  return [...parts, text.slice(from)].filter(Boolean);
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
