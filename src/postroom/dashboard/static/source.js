/**
 * What the service answered to one question, how old that is, and the four states in which a view can be.
 *
 * Loading is shown after 300 ms, so that a quick answer does not flicker. An old answer stays on the screen, marked as
 * old. Empty is only said of an answer.
 */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { Lost, Refusal } from "./client.js";
import { clockTime } from "./text.js";
import { redraw } from "./draw.js";

export const SLOW = 300; // milliseconds until "loading" is shown
export const STALE = 10000; // milliseconds without news after which an answer is called old

/** @template T */
export class Source {
  /** @type {T | undefined} */
  value = undefined;
  /** @type {Refusal | null} */
  error = null;
  at = 0; // when the answer came
  slow = false; // no answer yet, for longer than SLOW
  #asked = 0; // the number of the last question
  #answered = 0;
  #again = false;
  #under = false; // a question is under way
  /** @type {() => void} */
  #heard = () => {};

  /** @param {() => Promise<T>} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** Call a function after each answer, also while the page is hidden. @param {() => void} heard */
  listen(heard) {
    this.#heard = heard;
  }

  /** Ask anew. While a question is under way, one more is asked after it. @returns {Promise<void>} */
  async load() {
    if (this.#under) { this.#again = true; return; }
    this.#under = true;
    const number = (this.#asked += 1);
    const timer = setTimeout(() => { this.slow = true; redraw(); }, SLOW);
    try {
      const value = await this.ask();
      if (number > this.#answered) Object.assign(this, { value, error: null, at: Date.now() });
      this.#answered = number;
    } catch (error) {
      if (number > this.#answered && !(error instanceof Lost)) this.error = error instanceof Refusal ? error : new Refusal({ message: String(error) });
    } finally {
      clearTimeout(timer);
      this.slow = this.#under = false;
      this.#heard();
      redraw();
    }
    if (this.#again) { this.#again = false; await this.load(); }
  }

  /** Forget the answer: the question is another one now. */
  reset() {
    this.value = undefined;
    this.error = null;
    this.at = 0;
    this.#answered = this.#asked += 1;
    this.#under = this.#again = false;
  }
}

/** @typedef {{title: string, text?: string, command?: string}} Empty */

/**
 * @template T
 * @param {Source<T>} source
 * @param {{isEmpty: (value: T) => boolean, empty: () => Empty, content: (value: T) => unknown}} view
 */
export function framed(source, { isEmpty, empty, content }) {
  const { value, error } = source;
  if (error?.forbids) return refused(error);
  if (value === undefined) return error ? failed(error, () => source.load()) : source.slow ? loading() : nothing;
  const warning = error ? html`<div class="notice bad" role="alert"><span>${error.message}</span>
    <button type="button" @click=${() => source.load()}>Try again</button></div>` : nothing;
  return html`${warning}${isEmpty(value) ? nothingHere(empty()) : content(value)}`;
}

export function loading() {
  return html`<div class="state loading" aria-busy="true"><p>Loading…</p>
    <div class="bones" aria-hidden="true">${Array.from({ length: 8 }, () => html`<i></i>`)}</div></div>`;
}

/** @param {Empty} words */
export function nothingHere({ title, text, command }) {
  return html`<div class="state empty"><svg viewBox="0 0 48 48" aria-hidden="true"><path d="M6 14h36v22H6z M6 15l18 13 18-13" /></svg>
    <h2>${title}</h2>${text ? html`<p>${text}</p>` : nothing}${command ? html`<p><code>${command}</code></p>` : nothing}</div>`;
}

/** @param {Refusal} error */
export function refused(error) {
  return html`<div class="state refused" role="alert"><svg viewBox="0 0 48 48" aria-hidden="true"><path d="M12 22h24v18H12z M17 22v-6a7 7 0 0 1 14 0v6" /></svg>
    <h2>Not allowed</h2><p>${error.message}</p>
    ${error.hint ? html`<p>This would be: <code>${error.hint}</code></p>` : html`<p>Open the dashboard with more rights: <code>postroom dashboard --operator</code></p>`}</div>`;
}

/** @param {Refusal} error @param {() => void} again */
export function failed(error, again) {
  return html`<div class="state failed" role="alert"><h2>This cannot be shown now</h2><p>${error.message}</p>
    ${error.hint ? html`<p>${error.hint}</p>` : nothing}<button type="button" @click=${again}>Try again</button></div>`;
}

/** @param {number} at @param {string} why */
export function stale(at, why) {
  return html`<div class="notice stale" role="status"><span>As of <time>${clockTime(at)}</time>. ${why}</span></div>`;
}
