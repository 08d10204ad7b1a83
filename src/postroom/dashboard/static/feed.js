/**
 * The letters of a room by number, a page at a time, the newest first.
 *
 * The pages around the place one looks at are one chain: each begins where its neighbour ends, so no letter is missing or
 * shown twice in it. A jump begins another chain at the number that the place in the list suggests, because numbers have
 * gaps. Nothing is asked for before the list rests, and pages that were scrolled past are not asked for at all.
 */

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
        answer = await this.ask({ after: behind.letters[0].number, limit: PAGE });
        answer = { letters: answer.letters.reverse(), next: answer.letters.length < PAGE ? null : behind.letters[0].number + 1 };
      } else {
        this.#pages.clear();
        const share = (place * PAGE) / Math.max(1, this.total);
        answer = await this.ask({ before: place ? Math.max(1, Math.round(this.newest * (1 - share))) + 1 : undefined, limit: PAGE });
      }
      if (chain === this.#chain) this.#keep(place, answer);
    } catch {} finally { // the next look asks again
      this.#isAsking = false;
    }
    this.changed();
    if (this.#missing() >= 0) this.#timer = setTimeout(() => this.#fetch(), REST);
  }

  /** @param {number} place @param {{letters: Summary[], next: number | null}} page */
  #keep(place, page) {
    this.#pages.set(place, { letters: page.letters, next: page.next });
    if (this.#pages.size <= KEPT) return;
    const far = [...this.#pages.keys()].sort((a, b) => Math.abs(b - place) - Math.abs(a - place))[0];
    this.#pages.delete(far);
  }
}
