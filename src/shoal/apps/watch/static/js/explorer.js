// Every completion: found by filters and search, read side by side.

import { badge, card, cut, fill, fixed, h, escaped, listing, name, select, whole } from "./dom.js";
import { ask, Refused } from "./net.js";

const WAIT = 250; // ms after the last key

export class Explorer {
  constructor(section, dialog) {
    this.dialog = dialog;
    this.form = h("form", { role: "search", "aria-label": "Filter completions", onsubmit: (event) => { event.preventDefault(); this.search(); } });
    this.count = h("p", { class: "note", role: "status" });
    this.newer = h("button", { type: "button", hidden: true, onclick: () => this.search() }, "Show newer completions");
    this.body = h("tbody");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.next() }, "Show more");
    const columns = [["question", ""], ["completion", ""], ["reward", "narrow"], ["task", "middle"], ["made by", "middle"], ["round", "narrow"]];
    const results = h("table", { class: "results" }, h("caption", { class: "hidden" }, "Completions, the newest first. The question opens the whole rollout."),
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind || null }, title)))), this.body);
    fill(section, card("Completions", null, this.form, h("div", { class: "found" }, this.count, this.newer), results, h("div", { class: "found" }, this.more)));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !section.hidden && !dialog.open && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
        event.preventDefault();
        this.form.elements.text?.focus();
      }
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => { fill(dialog); if (this.opener?.isConnected) this.opener.focus(); });
  }

  async update({ id, summary }) {
    const key = JSON.stringify([id, summary.makers, summary.tasks, summary.nodes.length]);
    if (key !== this.key) {
      const other = id !== this.id;
      this.key = key;
      this.id = id;
      this.filters(summary);
      if (other) { await this.search(); this.seen = summary.completions; return; }
    }
    this.newer.hidden = summary.completions === this.seen;
    this.total = summary.completions;
    if (!this.newer.hidden && !this.rows) await this.search();
  }

  filters(summary) {
    const before = this.form.elements.text ? this.conditions() : {};
    const later = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.search(), WAIT); };
    const field = (label, name, attributes) => h("label", {}, label, h("input", { name, value: before[name] ?? null, oninput: later, ...attributes }));
    const choice = (label, name, options) => {
      const made = select(label, options, before[name] ?? "", () => this.search());
      made.querySelector("select").name = name;
      return made;
    };
    const nodes = summary.nodes.map((node) => node.name).sort();
    const number = { type: "number", inputmode: "numeric", min: "0", step: "1" };
    const text = field("Search in questions and completions ( / )", "text", { type: "search", maxlength: "200", spellcheck: "false", autocomplete: "off" });
    text.className = "search";
    const choices = h("div", { class: "filters" },
      choice("Task", "task", [["", "all"], ...summary.tasks.map((task) => [task, task])]),
      choice("Made by", "node", [["", "any node"], ...summary.makers.map((each) => [each, each])]),
      choice("Trained on by", "learner", [["", "any"], ["*", "another node"], ...nodes.map((each) => [each, each])]),
      choice("Reward", "reward", [["", "any"], ["0", "0: wrong"], ["part", "between"], ["1", "1: right"]]),
      choice("Rewards of its group", "live", [["", "any"], ["true", "differ (live)"], ["false", "are equal"]]),
      choice("Ended", "finish", [["", "any"], ["stop", "complete"], ["length", "cut short"]]),
      field("From round", "first", number), field("To round", "last", number));
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
    this.rows = 0;
    this.after = null;
    this.seen = this.total ?? this.seen;
    this.newer.hidden = true;
    await this.next(true);
  }

  /** The next page. A search that takes long answers in parts: they are asked for until there is a page's worth. */
  async next(fresh = false) {
    this.asked?.abort();
    const asked = this.asked = new AbortController();
    const query = this.query(), wanted = this.rows + 50, began = performance.now();
    let first = true;
    this.more.disabled = true;
    this.body.parentElement.setAttribute("aria-busy", "true");
    try {
      while (first || (this.after && this.rows < wanted)) {
        const page = await ask(`runs/${this.id}/rollouts`, { ...query, after: this.after }, asked.signal);
        if (fresh && first) fill(this.body);
        const from = this.rows;
        this.body.append(...page.rows.map((row) => this.row(row)));
        this.rows += page.rows.length;
        this.after = page.next;
        if (!fresh && first && page.rows.length) this.body.rows[from]?.querySelector("button")?.focus();
        first = false;
        const still = page.searched !== null && this.rows < wanted;
        this.count.textContent = still ? `${whole(this.rows)} found; searched back to round ${whole(page.searched)} …`
          : (this.rows ? `${whole(this.rows)} shown${this.after ? ", there are more" : ", these are all"}` : "nothing found") + ` (${Math.round(performance.now() - began)} ms)`;
      }
      this.more.hidden = !this.after;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.count.textContent = error instanceof Refused ? error.message : "the page has an error; reload it";
      if (!(error instanceof Refused)) console.error(error);
    }
    this.more.disabled = false;
    this.body.parentElement.removeAttribute("aria-busy");
  }

  row(row) {
    const open = h("button", { type: "button", class: "link", onclick: () => this.open(row, open) }, h("span", { class: "cut" }, cut(row.question, 300) || "(no text)"));
    const meta = (label, child) => h("td", { class: "meta", "data-label": label }, child);
    return h("tr", {},
      h("td", {}, open), h("td", {}, h("span", { class: "cut" }, cut(row.completion, 300) || "(empty)")),
      meta("reward", badge(row.reward)), meta("task", cut(row.task)), meta("by", name(row.node)), meta("round", whole(row.round)));
  }

  async open(row, opener) {
    this.opener = opener;
    const close = h("button", { type: "button", onclick: () => this.dialog.close() }, "Close");
    const body = h("div", { class: "dialog-body" }, h("p", { class: "note", role: "status" }, "loading"));
    fill(this.dialog, h("div", { class: "dialog-head" }, h("h2", { id: "rollout-title" }, "A rollout of ", name(row.node), `, round ${whole(row.round)}`), close), body);
    if (!this.dialog.open) this.dialog.showModal();
    close.focus();
    try {
      fill(body, this.rollout(await ask(`runs/${this.id}/rollout`, { part: row.part, row: row.row })));
    } catch (error) {
      fill(body, h("p", { class: "problem", role: "alert" }, error instanceof Refused ? error.message : String(error)));
    }
  }

  rollout(found) {
    const facts = [["made by", name(found.node)], ["task", cut(found.task)], ["version", cut(found.version)], ["settings", cut(found.config, 300)], ["seed", cut(found.seed)], ["index", cut(found.index)]];
    const learners = [
      { title: "node", get: (each) => h("span", {}, name(each.node), each.foreign ? "" : " (its maker)") },
      { title: "in round", number: true, get: (each) => String(each.round) },
      { title: "mean reward, by its verifier", number: true, get: (each) => fixed(each.mean_reward, 3) },
    ];
    const answers = found.completions.map((each, at) => h("article", { class: "answer" + (each.row === found.row ? " here" : "") },
      h("header", {}, h("h3", {}, `${at + 1} of ${found.completions.length}`), badge(each.reward), h("span", { class: "badge" }, each.finish_reason === "stop" ? "complete" : "cut short")),
      this.text(each, "completion", each.completion, each.length)));
    return [
      h("dl", { class: "facts" }, facts.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))),
      h("h2", {}, "Question"), this.text(found, "question", found.question, found.question_length),
      h("h2", { class: "block" }, "Completions"), h("div", { class: "side" }, answers),
      h("h2", { class: "block" }, "Trained on by"),
      found.learned.length ? listing("Who trained on it", "Updates that used this rollout.", learners, found.learned) : h("p", { class: "note" }, "No update of this run used it."),
    ];
  }

  /** A text as it is, and a button for the next piece while there is more. */
  text({ part, row }, field, given, length) {
    const place = h("pre", { class: "text", tabindex: "0", "aria-label": field }, escaped(given) || "(empty)");
    if (length <= Array.from(given).length) return place;
    let offset = Array.from(given).length;
    const left = () => `Show more: ${whole(length - offset)} characters are left`;
    const button = h("button", { type: "button", onclick: async () => {
      button.disabled = true;
      try {
        const piece = await ask(`runs/${this.id}/text`, { part, row, field, offset });
        place.append(escaped(piece.text));
        offset = piece.next ?? length;
        button.textContent = left();
        button.hidden = piece.next === null;
      } catch (error) {
        button.textContent = error.message;
      }
      button.disabled = false;
    } }, left());
    return h("div", {}, place, button);
  }
}
