// The page: which run, which view, and when to ask again.

import { cut, fill, h, escaped, isFolder } from "../dom.js";
import { figures } from "./figures.js";
import { ask, listen, PAUSE, Refused } from "./net.js";
import { newsOf } from "./news.js";
import { Learned } from "./learned.js";
import { Progress } from "./progress.js";
import { Swarm } from "./swarm.js";
import { Explorer } from "./explorer.js";
import { Judge } from "./judge.js";
import { Archive } from "./archive.js";
import { Ask } from "./ask.js";
import { Details } from "./details.js";
import { themes } from "./theme.js";

// ECharts empties its room with `innerHTML = ""`; anything more that would become markup is refused by the browser.
window.trustedTypes?.createPolicy("default", { createHTML: (text) => (text === "" ? "" : null) });

const COMPARED = 8; // runs side by side

// What the page shows stands in its address, so that a view can be sent: #view=rollouts&run=ab12&task=gcd&reward=1
const OWN = ["view", "run", "with"];
const LONGEST = 300; // characters of a value in the address

const $ = (id) => document.getElementById(id);
const views = {
  archive: new Archive($("archive")),
  judge: new Judge($("judge"), () => refresh()),
  learned: new Learned($("learned"), (change) => keep("learned", change)),
  progress: new Progress($("progress"), () => refresh()),
  swarm: new Swarm($("swarm")),
  rollouts: new Explorer($("rollouts"), $("rollout"), (change) => keep("rollouts", change)),
  ask: new Ask($("ask")),
  settings: new Details($("settings")),
};
const state = { run: null, view: "progress", beside: [], kept: {}, runs: [], versions: {}, has: ["progress", "learned", "ask", "swarm", "rollouts", "settings"] };
let link = ["connecting", ""], going = false;
let busy = false, again = false, last = 0;

function readHash() {
  const all = [...new URLSearchParams(location.hash.slice(1))].map(([key, value]) => [key, value.slice(0, LONGEST)]);
  const given = Object.fromEntries(all);
  state.view = Object.hasOwn(views, given.view ?? "") ? given.view : "progress";
  state.kept[state.view] = Object.fromEntries(all.filter(([key, value]) => !OWN.includes(key) && value)); // what the view itself wrote there
  if (state.runs.some((run) => run.id === given.run)) state.run = given.run;
  state.beside = (given.with ?? "").split(",").filter((id) => state.runs.some((run) => run.id === id && isFolder(run))).slice(0, COMPARED - 1);
}

function address(view) {
  const more = Object.entries(state.kept[view] ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return "#" + new URLSearchParams([["view", view], ["run", state.run ?? ""], ...(state.beside.length ? [["with", state.beside.join(",")]] : []), ...more]);
}

/** A view writes into the address what it shows. */
function keep(view, change) {
  state.kept[view] = { ...state.kept[view], ...change };
  if (view === state.view) history.replaceState(null, "", address(view));
  arrange();
}

function go(change) {
  Object.assign(state, change);
  history.replaceState(null, "", address(state.view));
  show();
}

/** The view in sight, and links to those that this run has. */
function arrange() {
  for (const name of Object.keys(views)) $(name).hidden = name !== state.view;
  for (const link of document.querySelectorAll("nav a")) {
    link.href = address(link.dataset.view);
    link.hidden = !state.has.includes(link.dataset.view);
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function show() {
  arrange();
  document.querySelector("nav a[aria-current]").scrollIntoView({ block: "nearest", inline: "center" }); // on a phone
  const run = state.runs.find((each) => each.id === state.run);
  document.title = (run ? cut(run.title, 40) + " – " : "") + "shoal";
  $("run").value = state.run ?? "";
  refresh();
}

function listRuns(runs) {
  state.runs = runs;
  if (!runs.some((run) => run.id === state.run)) state.run = runs[0]?.id ?? null;
  readHash();
  fill($("run"), runs.map((run) => h("option", { value: run.id }, cut(run.title, 60) + (run.live ? " (live)" : ""))));
  $("run").value = state.run ?? "";
  document.body.classList.toggle("without", !runs.length);
  if (!runs.length) throw new Refused("There is no run here yet: start one with shoal run, and it appears.");
}

/** Ask for what the view shows; calls that come meanwhile are one more. */
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    if (!state.runs.length) listRuns((await ask("runs")).runs);
    const id = state.run;
    const summary = await ask(`runs/${id}/summary`);
    going = summary.live;
    state.has = summary.views;
    if (!state.has.includes(state.view)) go({ view: state.has[0] });
    else arrange();
    connection();
    say("about", summary.about);
    warn(summary);
    $("figures").hidden = summary.kind !== "swarm" && !["progress", "judge"].includes(state.view);
    figures($("figures"), summary);
    await views[state.view].update({ id, summary, runs: state.runs, beside: state.beside, kept: state.kept[state.view] ?? {}, compare: (beside) => go({ beside }) });
    problem("");
  } catch (error) {
    if (!(error instanceof Refused)) console.error(error);
    problem(error instanceof Refused ? error.message : "the page has an error; reload it");
  }
  busy = false;
  last = Date.now();
  if (again) { again = false; refresh(); }
}

/** Shows whether the server answers and the run goes on, if that has changed. */
function connection() {
  const [text, kind] = link[1] === "on" ? [going ? "live" : "connected", going ? "on" : ""] : link;
  if ($("state").textContent === text) return;
  $("state").textContent = text;
  $("state").className = "state " + kind;
}

function say(where, text) {
  $(where).hidden = !text;
  if ($(where).textContent !== (text ?? "")) $(where).textContent = escaped(text);
}

/** Is anything wrong? One line with a count, and all of it on demand. */
function warn(summary) {
  const { kind, warnings, trouble, swarm } = summary, all = [...(warnings ?? [trouble])].filter(Boolean);
  const muted = swarm?.admission.peers.filter((peer) => peer.muted > 0).length ?? 0;
  if (muted) all.push(`${muted} peer${muted === 1 ? " is" : "s are"} muted for breaking rules.`);
  if (swarm?.faults) all.push(`${swarm.faults} errors of shoal itself: see its log.`);
  const room = $("trouble"), key = JSON.stringify(all);
  room.hidden = !all.length && !["run", "node"].includes(kind);
  if (room.dataset.shown === key) return;
  room.dataset.shown = key;
  room.className = all.length ? "alarm" : "fine";
  const first = escaped(all[0] ?? "").split("\n")[0];
  fill(room, h("summary", {}, all.length ? [h("b", {}, `${all.length} warning${all.length === 1 ? "" : "s"}`), ": ", first] : "Is anything wrong? Not that this run knows of."),
    all.length > 0 && h("ul", {}, all.map((text) => h("li", {}, escaped(text)))));
}

const problem = (text) => say("problem", text);

let timer = 0;
listen(
  (runs) => {
    const { listed, moved } = newsOf(state, runs, [state.run, ...state.beside], Date.now() - last);
    state.versions = Object.fromEntries(runs.map((run) => [run.id, run.version]));
    if (listed && (state.runs.length || document.body.classList.contains("without"))) { listRuns(runs); show(); }
    else if (moved && !timer) {
      timer = setTimeout(() => { timer = 0; if (!document.hidden) refresh(); }, Math.max(0, last + PAUSE - Date.now()));
    }
  },
  (text, kind) => { link = [text, kind]; connection(); },
);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
window.addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  readHash();
  show();
});
$("run").addEventListener("change", () => go({ run: $("run").value, kept: {}, beside: state.beside.filter((id) => id !== $("run").value) }));

themes($("theme"));
readHash();
show();
