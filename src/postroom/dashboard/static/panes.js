/** What several views share: a list with its reader beside it, the badge of new items, and how a row looks. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { redraw } from "./draw.js";
import { reader } from "./reader.js";
import { addressOf, go, stay } from "./router.js";
import { oneLine } from "./text.js";

export const WIDE = matchMedia("(min-width: 60rem)");

/** @typedef {import("./router.js").Place} Place */

/**
 * The part of a view that lists letters and opens one of them beside the list, or in its place in a narrow window.
 * The opened letter stands in the address.
 * @template T
 */
export class Panes {
  /** @type {Place} */
  place = { view: "", name: "", filters: new URLSearchParams() };
  /** @type {number | undefined} */
  #timer = undefined;

  /**
   * @param {import("./list.js").List<T>} list
   * @param {(item: T) => {letter: string, thread: string}} letterOf
   */
  constructor(list, letterOf) {
    this.list = list;
    this.letterOf = letterOf;
  }

  /** @param {Place} place */
  enter(place) {
    this.place = place;
    const open = place.filters.get("open");
    if (open) reader.open(open, reader.letter === open ? reader.thread : "");
    else reader.close();
  }

  get isOpen() {
    return this.place.filters.has("open");
  }

  /** @param {string | null} letter @returns {string} the address of this view with this letter */
  address(letter) {
    const filters = Object.fromEntries(this.place.filters);
    delete filters.open;
    return addressOf(this.place.view, this.place.name, letter ? { ...filters, open: letter } : filters);
  }

  /** Show a row's letter beside the list, soon: many keys may follow. @param {T} item */
  preview(item) {
    if (!WIDE.matches) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.show(item), 60);
  }

  /** @param {T} item */
  show(item) {
    clearTimeout(this.#timer);
    const { letter, thread } = this.letterOf(item);
    const address = this.address(letter);
    reader.open(letter, thread);
    if (WIDE.matches) {
      stay(address);
      this.place.filters.set("open", letter);
    } else go(address);
    redraw();
  }

  /** Open a row's letter, to read it. @param {T} item */
  open(item) {
    this.show(item);
    requestAnimationFrame(() => requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(".pages"))?.focus({ preventScroll: true })));
  }

  /** Go back to the list. */
  close() {
    if (!WIDE.matches && this.isOpen) go(this.address(null));
    this.list.element.focus({ preventScroll: true });
  }

  /** Whether the letter has the keys, and not the list. */
  get isReading() {
    const pane = document.querySelector(".reader");
    return Boolean(pane && (pane.contains(document.activeElement) || (!WIDE.matches && this.isOpen)));
  }

  /** @param {string} name @returns {boolean} whether the key moved something */
  key(name) {
    const { list } = this;
    if (this.isReading) return this.#readingKey(name);
    const steps = /** @type {Record<string, number | "first" | "last">} */ ({
      j: 1, down: 1, k: -1, up: -1, pgdn: list.page, space: list.page, pgup: -list.page, g: "first", home: "first", G: "last", end: "last",
    });
    if (name in steps) list.move(steps[name]);
    else if (["enter", "o", "right"].includes(name) && list.current !== undefined) this.open(list.current);
    else if (name === "v") list.mark();
    else if (name === "esc" && list.marked.size) { list.marked.clear(); list.draw(); }
    else return false;
    redraw();
    return true;
  }

  /** @param {string} name @returns {boolean} */
  #readingKey(name) {
    const pages = /** @type {HTMLElement | null} */ (document.querySelector(".pages"));
    const far = (pages?.clientHeight ?? 400) - 40;
    const steps = /** @type {Record<string, number>} */ ({ j: 60, down: 60, k: -60, up: -60, space: far, pgdn: far, pgup: -far, g: -1e9, home: -1e9, G: 1e9, end: 1e9 });
    if (name in steps) pages?.scrollBy({ top: steps[name] });
    else if (name === "n" || name === "p") {
      this.list.move(name === "n" ? 1 : -1);
      if (this.list.current !== undefined) this.open(this.list.current);
    } else if (["q", "esc", "left"].includes(name)) this.close();
    else return false;
    return true;
  }

  /** @param {unknown} head @param {unknown} list @param {string} [look] */
  template(head, list, look = "") {
    return html`<div class="panes ${look} ${this.isOpen ? "has-open" : ""}"><section class="pane" aria-label="List">${head}${list}</section>
      ${reader.template(this.address(null))}</div>`;
  }
}

/** @param {number} fresh @param {() => void} show */
export function freshButton(fresh, show) {
  return fresh > 0 ? html`<button type="button" class="fresh" @click=${show}>${fresh.toLocaleString("en-US")} new <span aria-hidden="true">↑</span></button>` : nothing;
}

/** @param {string} name @param {string} [look] */
export function agentLink(name, look = "") {
  return html`<a class="agent ${look}" href=${addressOf("agent", name)}><bdi>${oneLine(name, 80)}</bdi></a>`;
}
