// Thumbnails in the list of rollouts: pictures of questions. They are asked for when they come into view.

import { h, pictures } from "../dom.js";
import { ask } from "./net.js";

const AHEAD = "200px"; // below the screen

/** Room for the thumbnail of a question that may have one. */
export const thumbnail = (question) => /^\[picture /.test(question ?? "") && h("span", { class: "thumbnail" });

export class Thumbnails {
  constructor() {
    this.places = new WeakMap();
    this.last = Promise.resolve(); // one request at a time
    this.view = new IntersectionObserver((found) => {
      for (const { target } of found.filter((each) => each.isIntersecting)) {
        this.view.unobserve(target);
        this.last = this.last.then(() => this.draw(target));
      }
    }, { rootMargin: AHEAD });
  }

  /** An item of the list of run `id`, with a rollout at `part` and `row`. */
  watch(item, id, { part, row }) {
    if (!item.querySelector(".thumbnail")) return;
    this.places.set(item, { id, part, row });
    this.view.observe(item);
  }

  async draw(item) {
    if (!item.isConnected) return;
    const { id, part, row } = this.places.get(item);
    const found = await ask(`runs/${id}/rollout`, { part, row }).catch(() => null); // a list without them is as good
    const room = item.querySelector(".thumbnail"), shown = pictures(found?.pictures);
    if (shown.length) room.replaceChildren(...shown);
    else room.remove();
  }
}
