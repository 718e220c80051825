// Elements without markup: whatever a stranger wrote enters the page as a text node or an attribute's value, here.

const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** `text` with what would steer a display (control characters, changes of direction) made visible. */
export function escaped(text) {
  return String(text ?? "").replace(/\r\n/g, "\n").replace(STEERING, (c) => "⟨" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
}

/** At most `most` characters of it. */
export function cut(text, most = 40) {
  const letters = Array.from(escaped(text).slice(0, 4 * most + 4));
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}

/** An element: `h("p", {class: "note", onclick: f}, "text", child, ...)`. Strings become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

/** A name, apart from the direction of the text around it. */
export function name(text, most = 40) {
  const short = cut(text, most);
  return h("bdi", short === text ? {} : { title: cut(text, 200) }, short || "(no name)");
}

/** The name of a key and, beside it, what its owner calls it, which the server has checked (`config/display_name.py`). */
export function fullName(key, display) {
  return display ? h("span", {}, name(key), " (", name(display), ")") : name(key);
}

/** Names in the order in which people count: node-2 before node-10. */
export const inOrder = (names) => [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));

const GLOSSARY = "https://shoal-rl.github.io/shoal/glossary/#";

/** A term of the field in small letters, with a link to its part of the glossary. */
export function term(text, part = "measuring") {
  return h("a", { class: "term", href: GLOSSARY + part, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** A note on what is to be seen, and a table that scrolls by itself, reached by the keyboard too: `columns` are {title, number,
 * get(row) -> text or element}; the first is the row's header. */
export function listing(label, note, columns, rows) {
  const kind = (column) => (column.number ? "number" : null);
  const cell = (column, row, at) => h(at ? "td" : "th", { scope: at ? null : "row", class: kind(column), "data-label": column.title }, column.get(row) ?? "–");
  const table = h("table", {},
    h("caption", { class: "hidden" }, label),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column, at) => cell(column, row, at))))));
  return [note && h("p", { class: "note" }, note), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table)].filter(Boolean);
}

export function select(label, options, value, change) {
  const field = h("select", { onchange: () => change(field.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, cut(text, 60))));
  return h("label", {}, h("span", {}, label), field);
}

/** A select in `room` whose options may change: it is made again only when they do, so that it stays open and in focus. */
export function reselect(room, label, options, value, change) {
  const key = JSON.stringify(options);
  if (room.dataset.options !== key) {
    room.dataset.options = key;
    fill(room, options.length > 1 && select(label, options, value, (chosen) => room.change(chosen)));
  }
  room.change = change;
  const field = room.querySelector("select");
  if (field) field.value = value;
}

const FIRST = 20; // rows of a board, until somebody asks for more

/** A card of its own width with a table: `list` shows a `listing` of its first rows, and all of them on demand; `empty` what to say without rows. */
export function board(title) {
  let all = false, shown = [];
  const room = h("div", { class: "board" });
  const more = h("button", { type: "button", hidden: true, onclick: () => { all = true; list(...shown); room.querySelector(".scroll").focus(); } }, "Show all");
  const element = card(title, null, room, more);
  element.classList.add("wide");
  const list = (note, columns, rows, empty) => {
    const focused = room.contains(document.activeElement);
    shown = [note, columns, rows, empty];
    more.hidden = all || rows.length <= FIRST;
    more.textContent = `Show all ${whole(rows.length)}`;
    fill(room, rows.length ? listing(title, note, columns, more.hidden ? rows : rows.slice(0, FIRST)) : empty);
    if (focused) room.querySelector(".scroll")?.focus({ preventScroll: true });
  };
  return { element, list };
}

export function card(title, controls, ...children) {
  return h("article", { class: "card" }, h("div", { class: "head" }, h("h2", {}, title), controls && h("div", { class: "controls" }, controls)), ...children);
}

/** What to say where there is nothing: what is missing, and what to do. */
export function nothing(text, command = "") {
  return h("p", { class: "empty" }, text, command && [" ", h("code", {}, escaped(command))]);
}

/** The pictures of a question, by their addresses; the server draws them. */
export function pictures(addresses) {
  return (addresses ?? []).filter((each) => each.startsWith("data:image/png;base64,")).map((each) => h("img", { class: "shown", src: each, alt: "picture of the question" }));
}

/** A reward, green if it is full and red if it is nothing. */
export function badge(reward) {
  return h("span", { class: "badge" + (reward >= 1 ? " good" : reward <= 0 ? " bad" : "") }, fixed(reward));
}

/** Whether a source is the folder of a run. */
export const isFolder = (run) => run.kind === "run" || run.kind === "node";

/** A difference of two shares in points, with its sign. */
export const points = (value) => (value === null || value === undefined ? "–" : (value < 0 ? "−" : "+") + (100 * Math.abs(value)).toFixed(1));
export const percent = (value, digits = 1) => (value === null || value === undefined ? "–" : (100 * value).toFixed(digits) + " %");
export const fixed = (value, digits = 2) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));
export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
export function bytes(value) {
  for (const unit of ["B", "KB", "MB"]) {
    if (value < 1000) return value.toFixed(value < 10 && unit !== "B" ? 1 : 0) + " " + unit;
    value /= 1000;
  }
  return value.toFixed(1) + " GB";
}
export function span(seconds) {
  if (seconds < 100) return Math.max(0, seconds).toFixed(0) + " s";
  if (seconds < 6000) return (seconds / 60).toFixed(0) + " min";
  return seconds < 360000 ? (seconds / 3600).toFixed(0) + " h" : (seconds / 86400).toFixed(0) + " d";
}
