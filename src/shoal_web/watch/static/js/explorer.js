// Rollouts by question, found by filters and search, which stand in the address.

import { mark } from "./answer.js";
import { card, cut, fill, h, name, nothing, select, whole } from "../dom.js";
import { ask, Refused } from "./net.js";
import { Rollout } from "./rollout.js";
import { thumbnail, Thumbnails } from "./thumbnails.js";

const WAIT = 250; // ms after the last key
const FIELDS = ["text", "task", "node", "reward"];

export class Explorer {
  constructor(section, dialog, keep) {
    this.keep = keep;
    this.applied = {}; // the conditions of the last search
    this.rollout = new Rollout(dialog, () => keep({ open: "" }));
    this.dialog = dialog;
    this.thumbnails = new Thumbnails();
    this.form = h("form", { role: "search", "aria-label": "Filter rollouts", onsubmit: (event) => { event.preventDefault(); this.search(); } });
    this.count = h("p", { class: "note", role: "status" });
    this.newer = h("button", { type: "button", hidden: true, onclick: () => this.search() }, "Show newer rollouts");
    this.list = h("ul", { class: "rollouts", "aria-label": "Rollouts, the newest first" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.next() }, "Show more");
    fill(section, card("Rollouts", null, this.form, h("div", { class: "found" }, this.count, this.newer), this.list, h("div", { class: "found" }, this.more)));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !section.hidden && !dialog.open && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
        event.preventDefault();
        this.form.elements.text?.focus();
      }
    });
  }

  async update({ id, summary, kept }) {
    const asked = Object.fromEntries(FIELDS.filter((field) => kept[field]).map((field) => [field, kept[field]]));
    const key = JSON.stringify([id, summary.makers, summary.tasks]);
    const moved = id !== this.id || FIELDS.some((field) => (asked[field] ?? "") !== (this.applied[field] ?? "")); // by the address
    if (key !== this.key || moved) {
      this.filters(summary, moved ? asked : this.conditions());
      this.key = key;
      this.id = id;
    }
    this.total = summary.completions;
    if (moved || (this.newer.hidden = summary.completions === this.seen, !this.newer.hidden && !this.shown)) await this.search();
    const [part, row] = (kept.open ?? "").split(".").map(Number);
    if (Number.isInteger(part) && Number.isInteger(row) && !this.dialog.open) this.rollout.open(id, { part, row }, null);
  }

  filters(summary, asked) {
    const later = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.search(), WAIT); };
    const field = (label, name, attributes) => h("label", {}, label, h("input", { name, value: asked[name] ?? null, oninput: later, ...attributes }));
    const choice = (label, name, options) => {
      const known = options.some(([key]) => key === (asked[name] ?? "")) ? [] : [[asked[name], asked[name]]];
      const made = select(label, [...options, ...known], asked[name] ?? "", () => this.search());
      made.querySelector("select").name = name;
      return made;
    };
    const text = field("Search in questions and completions ( / )", "text", { type: "search", maxlength: "200", spellcheck: "false", autocomplete: "off" });
    text.className = "search";
    const choices = h("div", { class: "filters" },
      choice("Task", "task", [["", "all"], ...summary.tasks.map((task) => [task, task])]),
      choice("Made by", "node", [["", "any node"], ...summary.makers.map((each) => [each, each])]),
      choice("Reward", "reward", [["", "any"], ["0", "0: wrong"], ["part", "between"], ["1", "1: right"]]));
    const open = this.form.querySelector("details")?.open ?? innerWidth > 760;
    fill(this.form, h("div", { class: "filters" }, text), h("details", { open }, h("summary", {}, "Filters"), choices));
  }

  conditions() {
    return Object.fromEntries([...new FormData(this.form)].filter(([, value]) => value !== ""));
  }

  query() {
    const { reward, ...others } = this.conditions();
    const bounds = { 0: { most: 0 }, part: { least: 0.000001, most: 0.999999 }, 1: { least: 1 } }[reward] ?? {};
    return { ...others, ...bounds };
  }

  async search() {
    clearTimeout(this.timer);
    this.shown = 0;
    this.after = null;
    this.seen = this.total ?? this.seen;
    this.newer.hidden = true;
    this.applied = this.conditions();
    this.keep({ ...Object.fromEntries(FIELDS.map((field) => [field, ""])), ...this.conditions() });
    await this.next(true);
  }

  async next(fresh = false) {
    this.asked?.abort();
    const asked = this.asked = new AbortController(), began = performance.now();
    this.more.disabled = true;
    this.list.setAttribute("aria-busy", "true");
    try {
      const page = await ask(`runs/${this.id}/rollouts`, { ...this.query(), after: this.after }, asked.signal);
      if (fresh) fill(this.list);
      const from = this.shown;
      for (const each of page.rollouts) {
        const item = this.item(each);
        this.list.append(item);
        this.thumbnails.watch(item, this.id, each);
      }
      this.shown += page.rollouts.length;
      this.after = page.next;
      if (!fresh && page.rollouts.length) this.list.children[from]?.querySelector("button")?.focus();
      this.count.textContent = this.shown ? `${whole(this.shown)} shown${this.after ? ", there are more" : ", these are all"} (${Math.round(performance.now() - began)} ms)` : "";
      this.more.hidden = !this.after;
      if (!this.shown) fill(this.list, this.none());
    } catch (error) {
      if (error.name === "AbortError") return;
      this.count.textContent = error instanceof Refused ? error.message : "the page has an error; reload it";
      if (!(error instanceof Refused)) console.error(error);
    }
    this.more.disabled = false;
    this.list.removeAttribute("aria-busy");
  }

  none() {
    if (!Object.keys(this.conditions()).length) return h("li", { class: "none" }, nothing("No rollout yet: the first ones come with round 1, and are here a moment after."));
    const clear = h("button", { type: "button", onclick: () => { this.form.querySelectorAll("input, select").forEach((field) => { field.value = ""; }); this.search(); } }, "Clear the filters");
    return h("li", { class: "none" }, nothing("Nothing meets all these conditions."), clear);
  }

  /** A question with its completions, equal ones as one. */
  item(each) {
    const open = h("button", { type: "button", class: "link", onclick: () => { this.keep({ open: `${each.part}.${each.row}` }); this.rollout.open(this.id, each, open); } },
      h("span", { class: "cut" }, cut(each.question.trim(), 300) || "(no text)"));
    const answers = each.answers.map((one) => h("li", {}, mark(one.reward), h("span", { class: "cut" }, cut(one.completion, 300) || "(empty)"), one.times > 1 && h("span", { class: "times" }, `× ${one.times}`)));
    const shown = each.answers.reduce((sum, one) => sum + one.times, 0);
    return h("li", {},
      h("div", { class: "meta" }, h("span", { class: "task" }, cut(each.task)), h("span", {}, name(each.node), `, round ${whole(each.round)}`), h("b", {}, `${each.right} of ${each.completions} right`)),
      h("div", { class: "illustrated" }, thumbnail(each.question), open),
      each.answer !== null && h("div", { class: "illustrated" }, h("p", { class: "note" }, "Right answer: ", h("b", {}, cut(each.answer, 200)))),
      h("ul", { class: "answers" }, answers), shown < each.completions && h("p", { class: "note" }, `${each.completions - shown} more completions`));
  }
}
