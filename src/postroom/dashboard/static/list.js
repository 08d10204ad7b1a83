/**
 * A list of any length, of which only the rows on the screen are in the document, and the letters of a room as such a
 * list.
 *
 * It is a `listbox`: the focus stays on the list, and `aria-activedescendant` names the picked row. A row is known by
 * its id and not by its place, so that what arrives moves nothing that was picked. An element can be only so tall, so
 * of a very long list small steps move pixel by pixel and large ones by proportion.
 */

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";

// -- the list

const TALLEST = 4_000_000; // pixels
const BEYOND = 4; // rows that are drawn above and below the screen
const AT_ONCE = 60; // rows at most, whatever the height of the window

/**
 * @template T
 * @typedef {object} Rows
 * @property {string} label
 * @property {number} height of one row, in pixels
 * @property {() => number} count
 * @property {(index: number) => T | undefined} at undefined: not here yet
 * @property {(item: T) => string} id
 * @property {(item: T) => unknown} row
 * @property {(item: T) => string} [look] more classes of a row
 * @property {(first: number, last: number) => void} [wanted] called with the rows on the screen
 * @property {(item: T) => void} [picks] a row was picked
 * @property {(item: T) => void} [opens] a row was opened
 * @property {() => void} [touched] the person looks at the list: it must not move
 * @property {boolean} [many] whether rows can be marked
 */

let lists = 0;

/** @template T */
export class List {
  picked = ""; // the id of a row
  /** @type {Set<string>} */
  marked = new Set();
  #name = `list${(lists += 1)}`;
  #top = 0; // pixels of the whole list above the screen
  #bar = 0; // where the scroll bar was
  #drawn = 0;
  #place = 0; // the place of the picked row when it was last seen
  #wish = -1; // the place of a row to pick as soon as it is here

  /** @param {Rows<T>} rows */
  constructor(rows) {
    this.rows = rows;
    this.element = document.createElement("div");
    this.element.className = "list";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", rows.label);
    if (rows.many) this.element.setAttribute("aria-multiselectable", "true");
    this.element.style.setProperty("--row", `${rows.height}px`);
    this.space = document.createElement("div");
    this.inner = document.createElement("div");
    for (const part of [this.space, this.inner]) part.setAttribute("role", "none");
    this.space.className = "space";
    this.inner.className = "rows";
    this.space.append(this.inner);
    this.element.append(this.space);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("scrollend", () => this.#settle());
    this.element.addEventListener("click", (event) => this.#clicked(event));
    this.element.addEventListener("focus", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Whether the beginning of the list is on the screen. */
  get isAtTop() {
    return this.#top < 2;
  }

  /** @returns {T | undefined} */
  get current() {
    const index = this.indexOf(this.picked);
    return index < 0 ? undefined : this.rows.at(index);
  }

  /** @param {string} id @returns {number} its place; -1 if it is not in the list, or not here yet */
  indexOf(id) {
    if (!id) return -1;
    const count = this.rows.count();
    const near = Math.max(this.#place - 200, 0);
    for (let at = near; at < Math.min(near + 1000, count); at += 1) {
      const item = this.rows.at(at);
      if (item !== undefined && this.rows.id(item) === id) return (this.#place = at);
    }
    return -1;
  }

  /** @returns {T[]} the marked items, or the picked one */
  chosen() {
    if (!this.marked.size) return this.current === undefined ? [] : [this.current];
    const found = [];
    for (let at = 0; at < Math.min(this.rows.count(), 5000); at += 1) {
      const item = this.rows.at(at);
      if (item !== undefined && this.marked.has(this.rows.id(item))) found.push(item);
    }
    return found;
  }

  /** @param {number | "first" | "last"} step rows, down or up */
  move(step) {
    const count = this.rows.count();
    if (!count) return;
    this.rows.touched?.();
    const at = this.#wish >= 0 ? this.#wish : this.indexOf(this.picked);
    const from = at < 0 ? (this.picked ? this.#place - (Number(step) > 0 ? 1 : 0) : Number(step) > 0 ? -1 : 0) : at;
    const to = step === "first" ? 0 : step === "last" ? count - 1 : Math.max(0, Math.min(from + step, count - 1));
    this.show(to);
    this.#wish = to;
    this.#grant();
  }

  /** @param {string} name @returns {boolean} whether the key moved in the list */
  key(name) {
    const steps = /** @type {Record<string, number | "first" | "last">} */ ({
      j: 1,
      down: 1,
      k: -1,
      up: -1,
      pgdn: this.page,
      space: this.page,
      pgup: -this.page,
      g: "first",
      home: "first",
      G: "last",
      end: "last",
    });
    if (name in steps) this.move(steps[name]);
    return name in steps;
  }

  focus() {
    this.element.focus({ preventScroll: true });
  }

  /** Pick the row that a key led to, if it is here by now. */
  #grant() {
    const item = this.#wish < 0 ? undefined : this.rows.at(this.#wish);
    if (item === undefined) return;
    const place = this.#wish;
    this.#wish = -1;
    this.pick(item, place);
  }

  /** The rows of one screen. */
  get page() {
    return Math.max(1, Math.floor(this.element.clientHeight / this.rows.height) - 1);
  }

  /** @param {T} item @param {number} [place] */
  pick(item, place) {
    this.picked = this.rows.id(item);
    this.#wish = -1;
    if (place !== undefined) this.#place = place;
    this.draw();
    this.rows.picks?.(item);
  }

  /** Pick the neighbour of a row that left the list. @returns {T | undefined} */
  pickNear() {
    const item = this.rows.at(Math.max(0, Math.min(this.#place, this.rows.count() - 1)));
    if (item !== undefined) this.picked = this.rows.id(item);
    return item;
  }

  /** Mark the picked row, or unmark it. */
  mark() {
    if (!this.rows.many || !this.picked) return;
    this.rows.touched?.();
    if (!this.marked.delete(this.picked)) this.marked.add(this.picked);
    this.draw();
  }

  /** Scroll so that a row is on the screen. @param {number} index */
  show(index) {
    const { height } = this.rows;
    const screen = this.element.clientHeight;
    const top = index * height;
    if (top < this.#top) this.#scrollTo(top);
    else if (top + height > this.#top + screen) this.#scrollTo(top + height - screen);
    else this.draw();
  }

  get #whole() {
    return this.rows.count() * this.rows.height;
  }

  /** @param {number} top */
  #scrollTo(top) {
    this.#top = Math.max(0, Math.min(top, this.#whole - this.element.clientHeight));
    this.draw();
    this.#settle();
    this.draw();
  }

  #scrolled() {
    const bar = this.element.scrollTop;
    const moved = bar - this.#bar;
    if (!moved) return;
    this.#bar = bar;
    const screen = this.element.clientHeight;
    const last = Math.max(0, this.#whole - screen);
    const length = Math.max(1, this.space.offsetHeight - screen);
    if (this.#whole <= TALLEST) this.#top = bar;
    else if (Math.abs(moved) < 2 * screen && bar > 0 && bar < length) this.#top += moved;
    else this.#top = (bar / length) * last;
    this.#top = Math.max(0, Math.min(this.#top, last));
    if (this.#top > 2) this.rows.touched?.();
    this.draw();
  }

  /** Put the scroll bar where it belongs. */
  #settle() {
    const screen = this.element.clientHeight;
    const last = Math.max(1, this.#whole - screen);
    const length = Math.max(0, this.space.offsetHeight - screen);
    const bar = this.#whole <= TALLEST ? this.#top : (this.#top / last) * length;
    if (Math.abs(bar - this.element.scrollTop) < 1) return;
    this.element.scrollTop = bar;
    this.#bar = this.element.scrollTop;
    this.#place_rows();
  }

  #place_rows() {
    this.inner.style.transform = `translateY(${Math.round(this.#bar + this.#drawn * this.rows.height - this.#top)}px)`;
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    const target = /** @type {Element} */ (event.target);
    const row = target.closest("[role=option]");
    const index = Number(row?.getAttribute("aria-posinset")) - 1;
    const item = row ? this.rows.at(index) : undefined;
    if (item === undefined) return;
    this.rows.touched?.();
    this.pick(item, index);
    if (this.rows.many && (target.closest(".mark") || event.ctrlKey || event.metaKey)) this.mark();
    else this.rows.opens?.(item);
  }

  draw() {
    const { rows } = this;
    const count = rows.count();
    const whole = this.#whole;
    const screen = this.element.clientHeight;
    const tall = `${Math.min(whole, TALLEST)}px`;
    if (this.space.style.height !== tall) this.space.style.height = tall;
    this.#top = Math.max(0, Math.min(this.#top, whole - screen));
    const first = Math.max(0, Math.floor(this.#top / rows.height) - BEYOND);
    const last = Math.min(count, first + Math.min(AT_ONCE, Math.ceil(screen / rows.height) + 2 * BEYOND));
    this.#drawn = first;
    if (screen) rows.wanted?.(first, last);
    const drawn = [];
    let active = "";
    for (let at = first; at < last; at += 1) {
      const item = rows.at(at);
      const id = item === undefined ? "" : rows.id(item);
      const isPicked = id !== "" && id === this.picked;
      if (isPicked) active = `${this.#name}-${at}`;
      drawn.push(this.#row(item, id, at, count, isPicked));
    }
    render(drawn, this.inner);
    this.#place_rows();
    if (active) this.element.setAttribute("aria-activedescendant", active);
    else this.element.removeAttribute("aria-activedescendant");
    this.#grant();
  }

  /**
   * @param {T | undefined} item
   * @param {string} id
   * @param {number} at
   * @param {number} count
   * @param {boolean} isPicked
   */
  #row(item, id, at, count, isPicked) {
    const isMarked = this.marked.has(id);
    const isSelected = this.marked.size ? isMarked : isPicked;
    const own = item === undefined ? "bone" : this.rows.look?.(item);
    const look = `row ${isPicked ? "picked" : ""} ${isMarked ? "marked" : ""} ${own ?? ""}`;
    return html`<div role="option" class=${look} id="${this.#name}-${at}" aria-setsize=${count} aria-posinset=${at + 1}
      aria-selected=${isSelected} data-id=${id}>${this.rows.many ? html`<span class="mark" aria-hidden="true"></span>`
      : nothing}${item === undefined ? "…" : this.rows.row(item)}</div>`;
  }
}

/**
 * Which items of a changing answer are shown: as soon as the person looks at the list it stands, and what is new waits
 * behind a button. What is gone stays in its place, marked as gone.
 * @template T
 */
export class Standing {
  /** @type {T[]} */
  shown = [];
  /** @type {T[]} */
  latest = [];
  /** @type {Set<string>} */
  gone = new Set();
  fresh = 0; // items that are not shown
  stands = false;

  /** @param {(item: T) => string} id */
  constructor(id) {
    this.id = id;
  }

  /** @param {T[]} latest */
  take(latest) {
    this.latest = latest;
    if (!this.stands || !this.shown.length) return this.renew();
    const now = new Map(latest.map((item) => [this.id(item), item]));
    this.gone = new Set(this.shown.map(this.id).filter((id) => !now.has(id)));
    const before = new Set(this.shown.map(this.id));
    this.fresh = latest.filter((item) => !before.has(this.id(item))).length;
    this.shown = this.shown.map((item) => now.get(this.id(item)) ?? item);
  }

  /** Show everything that is known now. */
  renew() {
    this.shown = this.latest;
    this.gone = new Set();
    this.fresh = 0;
  }

  /** Take these out at once: the person settled them. @param {string[]} ids */
  drop(ids) {
    const left = (/** @type {T} */ item) => !ids.includes(this.id(item));
    this.shown = this.shown.filter(left);
    this.latest = this.latest.filter(left);
  }
}

// -- the letters of a room by number, a page at a time

/** @typedef {import("./types.js").Summary} Summary */

const PAGE = 100; // letters
const KEPT = 60; // pages
const REST = 40; // milliseconds

export class Feed {
  total = 0;
  newest = 0;
  fresh = 0; // letters that came since the list stands
  /** @type {Map<number, {letters: Summary[], next: number | null}>} */
  #pages = new Map(); // by place: row / PAGE
  /** @type {number | undefined} */
  #timer = undefined;
  #chain = 0; // counts the chains, so that an answer for an old one is dropped
  #isAsking = false;
  /** @type {[number, number]} */
  #wanted = [0, 0];

  /** @param {(params: Record<string, unknown>) => Promise<any>} ask @param {() => void} changed */
  constructor(ask, changed) {
    this.ask = ask;
    this.changed = changed;
  }

  /** @param {number} index @returns {Summary | undefined} */
  at(index) {
    return this.#pages.get(Math.floor(index / PAGE))?.letters[index % PAGE];
  }

  /** Begin anew at the newest letter. @param {number} [limit] how many letters are enough for now */
  async top(limit = PAGE) {
    const chain = (this.#chain += 1);
    const answer = await this.ask({ limit });
    if (chain !== this.#chain) return;
    this.#pages = new Map();
    this.#keep(0, answer);
    this.total = Math.max(answer.total ?? 0, answer.letters.length);
    this.newest = answer.newest ?? 0;
    this.fresh = 0;
    this.changed();
  }

  /** Say which rows are on the screen. @param {number} first @param {number} last */
  wanted(first, last) {
    this.#wanted = [Math.floor(first / PAGE), Math.floor(Math.max(first, last - 1) / PAGE)];
    if (this.#missing() < 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fetch(), REST);
  }

  /** @returns {number} the first page on the screen that is not here, or not whole; -1 if all are */
  #missing() {
    const [from, to] = this.#wanted;
    for (let place = from; place <= to && place * PAGE < this.total; place += 1) {
      const page = this.#pages.get(place);
      if (!page || (page.letters.length < PAGE && page.next !== null)) return place;
    }
    return -1;
  }

  async #fetch() {
    const place = this.#missing();
    if (place < 0 || this.#isAsking) return;
    this.#isAsking = true;
    const chain = this.#chain;
    try {
      const begun = this.#pages.get(place);
      const before = this.#pages.get(place - 1);
      const behind = this.#pages.get(place + 1);
      let answer;
      if (begun) {
        const rest = await this.ask({ before: begun.next, limit: PAGE - begun.letters.length });
        answer = { letters: [...begun.letters, ...rest.letters], next: rest.next };
      } else if (before?.next) answer = await this.ask({ before: before.next, limit: PAGE });
      else if (before) answer = { letters: [], next: null };
      else if (behind?.letters.length) {
        answer = await this.#above(behind.letters);
      } else {
        this.#pages.clear();
        const share = (place * PAGE) / Math.max(1, this.total);
        answer = await this.ask({
          before: place ? Math.max(1, Math.round(this.newest * (1 - share))) + 1 : undefined,
          limit: PAGE,
        });
      }
      if (chain === this.#chain) this.#keep(place, answer);
    } catch {
    } finally {
      // the next look asks again
      this.#isAsking = false;
    }
    this.changed();
    if (this.#missing() >= 0) this.#timer = setTimeout(() => this.#fetch(), REST);
  }

  /**
   * The page before these letters. Pages are asked for from the newest on, and numbers have gaps:
   * the window grows until it holds a page.
   * @param {Summary[]} letters @returns {Promise<{letters: Summary[], next: number | null}>}
   */
  async #above(letters) {
    const first = letters[0].number;
    let [small, large] = [0, Infinity];
    let span = 2 * (first - letters[letters.length - 1].number) + PAGE;
    for (;;) {
      const answer = await this.ask({ after: first, before: first + span, limit: 4 * PAGE });
      const many = answer.letters.length;
      const isEnough =
        (many >= PAGE && many < 4 * PAGE) || (many < PAGE && first + span > this.newest) || large - small < 2;
      if (isEnough) return { letters: answer.letters.slice(-PAGE), next: first + 1 };
      if (many < PAGE) small = span;
      else large = span;
      span = large === Infinity ? span * 4 : Math.ceil((small + large) / 2);
    }
  }

  /** @param {number} place @param {{letters: Summary[], next: number | null}} page */
  #keep(place, page) {
    this.#pages.set(place, { letters: page.letters, next: page.next });
    if (this.#pages.size <= KEPT) return;
    const far = [...this.#pages.keys()].sort((a, b) => Math.abs(b - place) - Math.abs(a - place))[0];
    this.#pages.delete(far);
  }
}
