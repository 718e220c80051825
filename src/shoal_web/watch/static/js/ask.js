// Ask: a question of the reader's own, and what the model says before and after, as it comes.

import { tagged } from "./answer.js";
import { card, cut, escaped, fill, h } from "../dom.js";
import { ask, stream } from "./net.js";

const LONGEST = 2000;

export class Ask {
  constructor(section) {
    this.field = h("textarea", { rows: "2", maxlength: String(LONGEST), required: true, "aria-label": "Your question", placeholder: "Your question, as the run asks its own" });
    this.send = h("button", { type: "submit", class: "primary", disabled: true }, "Ask");
    this.state = h("p", { class: "note", role: "status" });
    this.form = h("form", { class: "asking", onsubmit: (event) => { event.preventDefault(); this.ask(); } }, this.field, this.send);
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.form.requestSubmit(); }
    });
    this.sides = Object.fromEntries(["before", "after"].map((who) => [who, { name: h("h3", {}, who), text: h("div", { class: "text spoken" }) }]));
    const shown = Object.values(this.sides).map(({ name, text }) => h("article", { class: "answer" }, h("header", {}, name), text));
    fill(section, card("Ask it yourself", null,
      h("p", { class: "lead" }, "Type a question: the model of before and the newest one answer side by side."),
      this.form, this.state, h("div", { class: "side both" }, shown)));
  }

  async update({ id }) {
    if (id === this.id) return;
    if (!this.id) this.send.disabled = false; // until now nobody could be asked
    this.id = id;
    const { rollouts: [first] } = await ask(`runs/${id}/rollouts`, { limit: 1 });
    if (first) this.field.placeholder = "For example: " + cut(first.question.replace(/\s+/g, " "), 150);
  }

  async ask() {
    if (this.send.disabled || !this.field.value.trim()) return;
    this.send.disabled = true;
    this.state.textContent = "Loading both models, some seconds the first time. They compute when nothing else does.";
    for (const side of Object.values(this.sides)) fill(side.text);
    try {
      for await (const { who, name, text, error } of stream(`runs/${this.id}/ask`, { text: this.field.value })) {
        if (error) { this.state.textContent = cut(error, 1000); continue; }
        if (!Object.hasOwn(this.sides, who)) continue;
        const side = this.sides[who];
        side.name.textContent = `${who}: ${cut(name, 100)}`;
        fill(side.text, tagged(escaped(text)));
        if (text) this.state.textContent = "Answering: the likeliest words, as they come.";
      }
      if (this.state.textContent.startsWith("Answering")) this.state.textContent = "Done. It may say other things when it is asked with a temperature, as in training.";
    } catch (error) {
      this.state.textContent = cut(error.message, 1000);
    }
    this.send.disabled = false;
  }
}
