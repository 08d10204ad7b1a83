/** One letter with its thread, or one thread, by itself: pages with an address of their own. */

import { html } from "../vendor/lit-html/lit-html.js";
import { composer } from "../composer.js";
import { entryOf, offered } from "../app.js";
import { reader } from "../reader.js";

class Page {
  /** @param {"Letter" | "Thread"} title */
  constructor(title) {
    this.title = title;
  }

  /** @param {import("../router.js").Place} place */
  enter(place) {
    if (this.title === "Letter") reader.open(place.name);
    else reader.openThread(place.name);
  }

  leave() {
    reader.close();
  }

  refresh() {
    reader.refresh();
  }

  at() {
    return reader.source.at;
  }

  template() {
    return html`<h1 class="unseen">${this.title}</h1><div class="panes alone has-open">${reader.template("#/flow")}</div>`;
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    const entry = entryOf(reader.letter);
    const action = entry && offered(entry).find((one) => one.key === name);
    if (action) composer.begin(action, [entry]);
    else if (name === "esc" || name === "q" || name === "left") history.back();
    else return reader.key(name);
    return true;
  }

  focus() {
    /** @type {HTMLElement | null} */ (document.querySelector(".pages"))?.focus({ preventScroll: true });
  }
}

export const letterPage = new Page("Letter");
export const threadPage = new Page("Thread");
