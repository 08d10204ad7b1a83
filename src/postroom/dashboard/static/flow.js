/**
 * What happens in the room, as the service tells it in ticks: rates, who writes to whom, and when to look again.
 *
 * A tick is a hint: the lists ask for themselves. Names are told once and then meant by number.
 */

import { client } from "./app.js";
import { amount } from "./text.js";

/** @typedef {import("./types.js").Tick} Tick */

const FADE = 6; // seconds in which a pair loses most of its heat
const LOOKS = 250; // milliseconds between two events `tick`, at least
const WINDOW = 5; // seconds over which the rate is measured

class Flow extends EventTarget {
  /** @type {string[]} */
  names = [];
  /** @type {Map<number, number>} heat by sender * 65536 + recipient */
  heat = new Map();
  number = 0; // of the newest change
  sent = 0;
  settled = 0;
  died = 0;
  waits = -1;
  lastAt = ""; // of the last tick
  isPaused = false;
  /** @type {[number, number][]} [time, letters] of the last seconds */
  #recent = [];
  #cooled = Date.now();
  /** @type {number | undefined} */
  #timer = undefined;
  #isLimited = false;

  constructor() {
    super();
    client.addEventListener("flow/tick", (event) => this.#take(/** @type {CustomEvent} */ (event).detail));
  }

  async begin() {
    const answer = await client.call("flow/watch", this.#isLimited ? { only: "waits" } : {}).catch(() => null);
    if (!answer) return;
    this.names = answer.names ?? [];
    this.heat.clear();
    this.number = answer.number ?? 0;
    this.dispatchEvent(new Event("names"));
  }

  watchOnlyWaits() {
    if (this.#isLimited) return;
    this.#isLimited = true;
    if (client.status === "open") this.begin();
  }

  watchAll() {
    if (!this.#isLimited) return;
    this.#isLimited = false;
    if (client.status === "open") this.begin();
  }

  /** @param {Tick} tick */
  #take(tick) {
    if (tick.names?.length || tick.from === 0) {
      this.names = [...this.names.slice(0, tick.from), ...(tick.names ?? [])];
      if (tick.from === 0) this.heat.clear();
      this.dispatchEvent(new Event("names"));
    }
    this.number = tick.number;
    this.lastAt = tick.at;
    this.sent += tick.sent;
    this.settled += tick.settled;
    this.died += tick.died;
    this.cool();
    for (const [from, to, many] of tick.pairs ?? []) {
      const pair = from * 65536 + to;
      this.heat.set(pair, (this.heat.get(pair) ?? 0) + many);
    }
    if (tick.sent) this.#recent.push([Date.now(), tick.sent]);
    if (tick.waits !== this.waits) {
      this.waits = tick.waits;
      this.dispatchEvent(new Event("waits"));
    }
    this.dispatchEvent(new Event("pairs"));
    if (this.isPaused || document.hidden) return;
    this.#timer ??= window.setTimeout(() => {
      this.#timer = undefined;
      this.dispatchEvent(new Event("tick"));
    }, LOOKS);
  }

  /** Let all pairs lose heat, as time passed. */
  cool() {
    const seconds = (Date.now() - this.#cooled) / 1000;
    if (seconds < 0.2) return;
    this.#cooled = Date.now();
    const left = Math.exp((-seconds * 2.3) / FADE);
    for (const [pair, heat] of this.heat) {
      if (heat * left < 0.05) this.heat.delete(pair);
      else this.heat.set(pair, heat * left);
    }
  }

  /** @returns {number} letters a second, lately */
  get rate() {
    const from = Date.now() - WINDOW * 1000;
    while (this.#recent.length && this.#recent[0][0] < from) this.#recent.shift();
    return this.#recent.reduce((sum, [, many]) => sum + many, 0) / WINDOW;
  }

  rateWords() {
    const { rate } = this;
    if (!rate) return "quiet";
    return rate < 1 ? `${Math.ceil(rate * 60)} letters a minute` : `${amount(Math.round(rate))} letters a second`;
  }

  /** @returns {{from: number, to: number, heat: number}[]} the hottest pairs first */
  pairs() {
    return [...this.heat].map(([pair, heat]) => ({ from: Math.floor(pair / 65536), to: pair % 65536, heat })).sort((a, b) => b.heat - a.heat);
  }
}

export const flow = new Flow();
