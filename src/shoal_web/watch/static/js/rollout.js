// One rollout whole, in a dialog: its question, its completions side by side, who trained on it.

import { answerOf, verdict } from "./answer.js";
import { cut, fill, fixed, h, escaped, listing, name, pictures, whole } from "../dom.js";
import { ask, Refused } from "./net.js";

export class Rollout {
  /** `closed`: called when the dialog closes. */
  constructor(dialog, closed) {
    this.dialog = dialog;
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => { fill(dialog); closed(); if (this.opener?.isConnected) this.opener.focus(); });
  }

  async open(id, { part, row }, opener) {
    this.opener = opener;
    const close = h("button", { type: "button", onclick: () => this.dialog.close() }, "Close");
    const title = h("h2", { id: "rollout-title" }, "A rollout");
    const body = h("div", { class: "dialog-body" }, h("p", { class: "note", role: "status" }, "loading"));
    fill(this.dialog, h("div", { class: "dialog-head" }, title, close), body);
    if (!this.dialog.open) this.dialog.showModal();
    close.focus();
    try {
      const found = await ask(`runs/${id}/rollout`, { part, row });
      fill(title, "A rollout of ", name(found.node), `, round ${whole(found.round)}`);
      fill(body, this.rollout(found));
    } catch (error) {
      fill(body, h("p", { class: "problem", role: "alert" }, error instanceof Refused ? error.message : String(error)));
    }
  }

  rollout(found) {
    const identity = [["task", cut(found.task)], ["version", cut(found.version)], ["settings", cut(found.config, 300)], ["seed", cut(found.seed)], ["index", cut(found.index)]];
    const learners = [
      { title: "node", get: (each) => h("span", {}, name(each.node), each.peer ? "" : " (its maker)") },
      { title: "in round", number: true, get: (each) => String(each.round) },
      { title: "mean reward, by its verifier", number: true, get: (each) => fixed(each.mean_reward, 3) },
    ];
    const answers = found.completions.map((each, at) => h("article", { class: "answer" + (each.row === found.row ? " here" : "") },
      h("header", {}, h("h3", {}, `${at + 1} of ${found.completions.length}`), verdict(each.reward), h("span", { class: "badge" }, each.finish_reason === "stop" ? "complete" : "cut short")),
      this.text("completion", each.completion, each.length, answerOf(each)),
      each.read && h("p", { class: "note" }, "Read: ", h("b", { class: "said" }, escaped(each.read)))));
    return [
      h("h2", {}, "Question"), pictures(found.pictures), this.text("question", found.question, found.question_length, h("pre", { class: "text" }, escaped(found.question) || "(empty)")),
      found.answer === null ? null : h("p", {}, "Right answer: ", h("b", { class: "said" }, cut(found.answer, 1000))),
      h("h2", { class: "block" }, "Completions"), h("div", { class: "side" }, answers),
      found.proof ? this.proof(found) : [h("h2", { class: "block" }, "Trained on by"),
      found.learned.length ? listing("Who trained on it", "Updates that used this rollout.", learners, found.learned) : h("p", { class: "note" }, "No update of this run used it.")],
      h("h2", { class: "block" }, "Identity"), h("p", { class: "note" }, "With these numbers anybody makes the same question again."),
      h("dl", { class: "facts" }, identity.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))),
    ];
  }

  /** What was checked just now, of a rollout in an archive. */
  proof({ proof: { key, wrong, question, rewards }, node }) {
    const good = [key && ["signed by ", name(node), ", key ", h("code", {}, cut(key, 64))],
      !wrong && question && "question made again: it is this one", !wrong && rewards && `reward computed again: ${rewards.map((each) => fixed(each)).join(", ")}`];
    const line = (sign, kind, text) => h("li", {}, h("span", { class: "mark " + kind, "aria-hidden": "true" }, sign), " ", text);
    return [h("h2", { class: "block" }, "Proof"), h("ul", { class: "proof" }, good.filter(Boolean).map((text) => line("✓", "good", text)), wrong && line("✗", "bad", ["not proven: ", cut(wrong, 200)]))];
  }

  /** A text as it is, and how much of it is left out. */
  text(what, given, length, place) {
    place.tabIndex = 0;
    place.setAttribute("aria-label", what);
    const left = length - Array.from(given).length;
    return left > 0 ? h("div", {}, place, h("p", { class: "note" }, `${whole(left)} more characters are in the run's folder.`)) : place;
  }
}
