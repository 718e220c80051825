// The settings of the run, and what differs between the runs shown beside each other.

import { board, cut, fill, h, isFolder, listing, nothing } from "../dom.js";
import { ask } from "./net.js";
import { OtherRuns } from "./other_runs.js";

export class Settings {
  constructor(section) {
    this.others = new OtherRuns();
    this.list = board("Settings");
    fill(section, h("div", { class: "grid" }, this.others.element, this.list.element));
  }

  async update({ id, runs, beside, compare }) {
    this.others.show(id, runs, beside, compare);
    const shown = [id, ...beside];
    const found = await Promise.all(shown.map((run) => ask(`runs/${run}/settings`)));
    const values = found.map(({ settings }) => new Map(settings.map(({ name, value }) => [name, value])));
    const names = [...new Set(values.flatMap((each) => [...each.keys()]))];
    const differs = (name) => values.some((each) => each.get(name) !== values[0].get(name));
    const rows = shown.length > 1 ? names.filter(differs) : names;
    const title = (run) => cut(runs.find((each) => each.id === run)?.title ?? "", 40);
    const columns = [{ title: "setting", get: (name) => h("code", {}, cut(name, 200)) },
      ...shown.map((run, at) => ({ title: shown.length > 1 ? title(run) : "value", get: (name) => h("span", { class: "said" }, values[at].has(name) ? cut(values[at].get(name), 300) || "(empty)" : "–") }))];
    const same = names.length - rows.length;
    const note = shown.length > 1 ? `What differs between these runs; ${same} settings are the same.` : "All settings of config.toml: shoal run --config on it repeats the run." + (runs.filter(isFolder).length > 1 ? " Choose another run above to see what differs." : "");
    fill(this.list.room, rows.length ? listing("Settings", note, columns, rows) : nothing(names.length ? "All settings are the same." : "This run has no config.toml that can be read."));
  }
}
