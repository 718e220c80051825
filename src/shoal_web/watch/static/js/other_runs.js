// A choice of other runs to show beside this one.

import { cut, fill, h, isFolder } from "../dom.js";

const MOST = 7, LISTED = 100;

export class OtherRuns {
  constructor() {
    this.boxes = h("div", { class: "controls" });
    this.element = h("details", { class: "card wide", hidden: true }, h("summary", {}, "Show other runs beside this one"), this.boxes);
  }

  show(id, runs, beside, compare) {
    const key = JSON.stringify([id, runs.map((run) => run.id), beside]);
    runs = runs.filter(isFolder);
    this.element.hidden = runs.length < 2 || !runs.some((run) => run.id === id);
    if (beside.length) this.element.open = true;
    if (key === this.key) return;
    this.key = key;
    fill(this.boxes, runs.filter((run) => run.id !== id).slice(0, LISTED).map((run) => {
      const box = h("input", { type: "checkbox", checked: beside.includes(run.id), disabled: beside.length >= MOST && !beside.includes(run.id) });
      box.addEventListener("change", () => compare(box.checked ? [...beside, run.id] : beside.filter((each) => each !== run.id)));
      return h("label", {}, box, h("bdi", {}, cut(run.title, 50)));
    }));
  }
}
