// The page shows what the API says. All text enters it as text, never as markup.

import { escaped, h, name, percent as exactly, pictures, span } from "./dom.js";

const PAUSE = 2000; // ms between two requests for the state
const $ = (id) => document.getElementById(id);
let word = ""; // what posts must show
let state = null;
let view = "";
let want = kept() || "needed";
let entries = []; // answered questions, the newest first
let whole = false; // whether these are all
const PAGE = 30; // of them at a time

// Which questions this person wants, where the browser keeps that.
function kept() {
  try { return localStorage.getItem("shoal-want"); } catch { return null; }
}

function keep(wanted) {
  try { localStorage.setItem("shoal-want", wanted); } catch { /* it keeps nothing */ }
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Shoal": word },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  const text = await response.text();
  let answer = {};
  try { answer = JSON.parse(text); } catch { answer = { error: text }; }
  if (response.status === 401) location.assign("/enter");
  if (!response.ok) {
    throw Object.assign(new Error(answer.error || `it answered ${response.status}`), { status: response.status });
  }
  return answer;
}

let toasting = 0;
function toast(text) {
  $("toast").textContent = escaped(text);
  $("toast").hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => { $("toast").hidden = true; }, 6000);
}

// Runs the work of a button, which is disabled meanwhile, and shows errors.
async function doing(buttons, work) {
  for (const button of buttons) button.disabled = true;
  try { await work(); } catch (error) {
    toast(error instanceof TypeError ? "shoal human does not answer: is it still running?" : error.message);
  } finally { for (const button of buttons) button.disabled = false; }
}

const percent = (share) => exactly(share, 0);
const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const spoken = (label) => {
  const said = escaped(label.split(":").pop().replaceAll("_", " "));
  return said.length <= 3 ? said.toUpperCase() : said;
};
const right = (reward) => reward >= 0.999;

function ago(time) {
  const seconds = Date.now() / 1000 - time;
  return seconds < 45 ? "just now" : `${span(seconds)} ago`;
}

// Answering.

let asked = null; // the question on the page
let settled = null; // the question with its answers and rewards, once it has them

async function showAnswer(fresh = false) {
  if (!asked || fresh) {
    settled = null;
    const known = ["needed", ...state.tasks.map((task) => task.label)];
    if (!known.includes(want)) want = "needed"; // kept by the page of another swarm
    asked = (await ask("/api/question", { want })).questions[0];
  }
  drawAnswer();
}

// Runs `work` on the question on the page; false if that was settled before, for instance in another tab.
async function stillWaits(work) {
  try { await work(); return true; } catch (error) {
    if (error.status !== 404) throw error;
    return false;
  }
}

const skipped = (question) => stillWaits(() => ask("/api/skip", { round: question.round }));

function chooser() {
  const select = h("select", { id: "want", title: "Which questions you get" });
  select.append(h("option", { value: "needed" }, "recommended: what nodes often get wrong"));
  const group = h("optgroup", { label: "one task" });
  for (const task of state.tasks) {
    group.append(h("option", { value: task.label }, spoken(task.label)));
  }
  select.append(group);
  select.value = want;
  select.addEventListener("change", () => doing([select], async () => {
    want = select.value;
    keep(want);
    if (asked && !settled && want !== asked.task) await skipped(asked);
    await showAnswer(true);
    focusFirst();
  }));
  return h("label", { class: "choice" }, h("span", {}, "Ask me"), select);
}

function questionText(text) {
  const lines = text.trim().split("\n");
  const kind = lines.length > 9 || text.length > 420 ? " long" : lines.length > 2 ? " middle" : "";
  const grid = lines.filter((line) => /(\d ){5}/.test(line)).length > 2 ? " grid" : "";
  return h("p", { class: `question${kind}${grid}` }, escaped(text.trim()));
}

function facts(label) {
  const others = state.tasks.find((each) => each.label === label)?.others ?? null;
  return others === null ? null : h("p", { class: "facts" }, `Nodes solve ${percent(others)} of these lately.`);
}

function field(label, attributes = {}) {
  const box = h("textarea", { rows: 1, spellcheck: "false", autocapitalize: "off", autocomplete: "off", ...attributes });
  const grow = () => { box.style.height = "auto"; box.style.height = `${Math.min(400, box.scrollHeight + 4)}px`; };
  box.addEventListener("input", grow);
  return h("label", { class: "field" }, h("span", {}, label), box);
}

function drawAnswer() {
  const question = asked;
  const card = h("article", { class: "card" },
    h("div", { class: "bar" }, h("span", { class: "tag" }, spoken(question.task)), chooser()),
    pictures(question.pictures), questionText(question.text));
  const about = facts(question.task);
  if (about) card.append(about);
  $("answer").replaceChildren(card);
  if (settled) { card.append(outcome(settled)); return; }

  const fields = h("div");
  const reasoning = question.marks ? field("Your reasoning (nodes learn from it too; optional)", { name: "reasoning" }) : null;
  const add = () => {
    const count = fields.childElementCount;
    const label = count ? `Another answer (${count + 1})` : "Your answer";
    const one = field(label, { name: "answer", maxLength: question.longest });
    one.querySelector("textarea").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
    });
    fields.append(one);
    more.hidden = fields.childElementCount >= Math.min(4, state.most);
    return one;
  };
  const send = h("button", { class: "primary", type: "submit" }, "Send", h("kbd", {}, "Enter"));
  const more = h("button", { type: "button", title: "Of several answers, nodes learn which was better" }, "+ another answer");
  const skip = h("button", { type: "button" }, "Skip");
  const form = h("form", { class: "reply" }, reasoning, fields,
    h("div", { class: "actions" }, send, more, h("span", { class: "gap" }), skip));
  add();
  more.addEventListener("click", () => add().querySelector("textarea").focus());
  skip.addEventListener("click", () => doing([send, more, skip], async () => {
    await skipped(question);
    await showAnswer(true);
    focusFirst();
  }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const thought = reasoning ? reasoning.querySelector("textarea").value.trim() : "";
    const texts = [...fields.querySelectorAll("textarea")].map((box) => box.value.trim()).filter(Boolean)
      .map((text) => (thought ? `${thought}\n${question.marks[0]}${text}${question.marks[1]}` : text));
    if (!texts.length) { focusFirst(); return; }
    doing([send, more, skip], async () => {
      if (!await stillWaits(async () => { settled = await ask("/api/answer", { round: question.round, answers: texts }); })) {
        await showAnswer(true);
        focusFirst();
        toast("That question was answered or skipped elsewhere. Here is the next one.");
        return;
      }
      await refresh();
      drawAnswer();
      $("next").focus();
    });
  });
  card.append(form);
}

function verdict(rewards) {
  const good = rewards.filter(right).length;
  if (rewards.length > 1) {
    const all = good === rewards.length ? "All of them are right" : good ? `${good} of ${rewards.length} are right` : "None is right";
    return [good > 0, all];
  }
  if (good) return [true, "Right"];
  return rewards[0] > 0 ? [false, `Nearly: ${rewards[0].toFixed(2)} of 1`] : [false, "Not right"];
}

function chips(entry) {
  return h("ol", { class: "said" }, entry.answers.map((text, number) => h("li", {
    class: right(entry.rewards[number]) ? "good" : "bad",
  }, `${right(entry.rewards[number]) ? "✓" : "✗"} ${escaped(text)}`)));
}

// The right answer, after one's own and where none of those is right.
function rightAnswer(entry) {
  if (!entry.right || entry.rewards.some(right)) return null;
  return h("div", { class: "right" }, h("span", {}, "The right answer"), h("p", {}, escaped(entry.right)));
}

function learners(entry) {
  const line = h("p", { class: "learners" });
  const first = entry.rewards.some(right) ? "Learned from by " : "Learned from, as what not to do, by ";
  entry.learners.forEach((one, number) => line.append(number ? ", " : first, h("b", {}, name(one.name)), ` in its round ${one.at}`));
  return entry.learners.length ? line : null;
}

function outcome(entry) {
  const [good, title] = verdict(entry.rewards);
  const there = state.peers ? `Sent to the swarm of ${plural(state.peers, "other node")}.` : "No node is connected yet; your answer is sent when one is.";
  const next = h("button", { id: "next", class: "primary", type: "button" }, "Next question", h("kbd", {}, "Enter"));
  next.addEventListener("click", () => doing([next], async () => { await showAnswer(true); focusFirst(); }));
  return h("div", {},
    h("div", { class: `result${good ? " good" : ""}` },
      h("h2", {}, title),
      chips(entry),
      rightAnswer(entry),
      learners(entry) || h("p", { class: "wait" }, `${there} Nodes that learn from it appear here.`)),
    h("div", { class: "actions" }, next));
}

const focusFirst = () => document.querySelector("#answer textarea[name=answer]")?.focus({ preventScroll: true });

// The journal.

async function read(more = false) {
  const limit = more ? PAGE : Math.min(200, Math.max(PAGE, entries.length));
  const found = (await ask(`/api/journal?limit=${limit}${more ? `&before=${entries.at(-1).round}` : ""}`)).entries;
  entries = more ? [...entries, ...found] : found;
  whole = found.length < limit;
}

function drawJournal() {
  if (!entries.length) {
    $("journal").replaceChildren(h("div", { class: "card empty" }, h("b", {}, "No answers yet"),
      "Your answers are kept here, with their scores and who learned from them."));
    return;
  }
  const list = h("ol", { class: "entries" }, entries.map((entry) => h("li", { class: "entry" },
    h("div", { class: "head" }, h("span", {}, spoken(entry.task)), h("time", {}, ago(entry.answered))),
    h("p", { class: "ask" }, escaped(entry.text.trim())), chips(entry), rightAnswer(entry), learners(entry))));
  const card = h("article", { class: "card" }, list);
  if (!whole) {
    const more = h("button", { class: "more", type: "button" }, "Earlier answers");
    more.addEventListener("click", () => doing([more], async () => { await read(true); drawJournal(); }));
    card.append(more);
  }
  $("journal").replaceChildren(card);
}

// The state of things.

function drawState() {
  $("dot").className = `dot ${state.silo ? "off" : "on"}`;
  const where = `${state.swarm}${state.private ? " (private)" : ""}`;
  $("place").textContent = escaped(state.silo ? `${where}: ${state.note || "alone"}` : `${where}: ${plural(state.peers, "node")} here`);
  $("name").textContent = escaped(state.name);
  $("name").title = state.id;
  const { answered, reward, taught, learners: nodes } = state.totals;
  const rows = [["answered", answered], ["right", answered ? percent(reward / answered) : "–"],
    ["learned from", taught], ["by nodes", nodes]];
  $("totals").replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
}

/** Who learned lately; `known`: those that were shown before. */
function drawFeed(known) {
  const lessons = entries.flatMap((entry) => entry.learners.map((one) => ({ ...one, task: entry.task, key: `${entry.round} ${one.node}` })));
  lessons.sort((a, b) => b.time - a.time);
  $("feed").replaceChildren(...lessons.slice(0, 6).map((one) => h("li", { class: known && !known.has(one.key) ? "new" : "" }, h("b", {}, name(one.name)),
    h("p", {}, h("span", {}, `${spoken(one.task)}, round ${one.at}`), h("time", { "data-time": String(one.time) }, ago(one.time))))));
  return new Set(lessons.map((one) => one.key));
}

let shown = null; // lessons in the feed, once it was drawn

async function refresh() {
  const before = state?.totals;
  state = await ask("/api/state");
  word = state.word;
  drawState();
  if (before && before.taught === state.totals.taught && before.answered === state.totals.answered) return;
  await read();
  shown = drawFeed(shown);
  const focused = document.activeElement?.id;
  const now = settled && entries.find((entry) => entry.round === settled.round);
  if (view === "answer" && now && now.learners.length !== settled.learners.length) {
    settled = now;
    drawAnswer();
    if (focused === "next") $("next").focus();
  }
  if (view === "journal") drawJournal();
}

async function watch() {
  for (;;) {
    await new Promise((done) => setTimeout(done, PAUSE));
    if (document.hidden) continue;
    try {
      await refresh();
      for (const time of document.querySelectorAll("time[data-time]")) time.textContent = ago(Number(time.dataset.time));
    } catch {
      $("dot").className = "dot off";
      $("place").textContent = "shoal human does not answer";
    }
  }
}

async function turn() {
  const wanted = location.hash.slice(1);
  if (wanted === "main" && view) return; // the link that skips to the content
  view = ["answer", "journal"].includes(wanted) ? wanted : "answer";
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  await doing([], async () => {
    await { answer: showAnswer, journal: drawJournal }[view]();
  });
  for (const name of ["answer", "journal"]) $(name).hidden = name !== view;
  if (view === "answer") focusFirst();
}

async function start() {
  await doing([], async () => {
    await refresh();
    await turn();
    window.addEventListener("hashchange", turn);
    watch();
  });
}

start();
