/** Search, whose query is an address that can be kept; and one letter or thread by itself, which is an address, too. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { addressOf, client, entryOf, focusOn, framed, go, offered, redraw, Source } from "../app.js";
import { composer } from "../composer.js";
import { letterList, letterPanes, reader, summaryOf } from "../reader.js";
import { counted } from "../text.js";

// -- search

/** @typedef {import("../types.js").Message} Message @typedef {import("../types.js").Summary} Summary */

const PAGE = 50;
const MOST = 1000; // letters of one search
const WORDS = [
  ["from:coder", "who wrote it"], ["to:human", "who got it"], ["kind:task", "what it is"], ["tag:release", "a tag"],
  ['"exact words"', "these words in this order"], ["before:2026-11-01", "older"], ["after:2026-10-01", "newer"],
];

class Search {
  title = "Search";
  query = "";
  #ranked = false;
  #more = false;

  /** @type {Source<Summary[]>} */
  source = new Source(() => (this.query ? this.#page([]) : Promise.resolve([])));
  list = letterList(() => this.panes, {
    label: "Letters found",
    count: () => this.source.value?.length ?? 0,
    at: (index) => this.source.value?.[index],
    wanted: (_first, last) => { if (last >= (this.source.value?.length ?? 0) - 10) this.#grow(); },
  });
  panes = letterPanes(this.list);

  /** @param {import("../app.js").Place} place */
  enter(place) {
    const query = place.filters.get("q") ?? "";
    const ranked = place.filters.get("best") === "1";
    const isOther = query !== this.query || ranked !== this.#ranked;
    this.query = query;
    this.#ranked = ranked;
    this.panes.enter(place);
    if (document.activeElement !== field()) write(query);
    if (!isOther) return;
    this.source.reset();
    this.list.picked = "";
    this.source.load();
  }

  leave() {
    write("");
  }

  refresh() {
    reader.refresh();
    if (!this.source.value && this.query) this.source.load();
  }

  at() {
    return this.source.at;
  }

  /** @param {Summary[]} known @returns {Promise<Summary[]>} these and a page more */
  async #page(known) {
    const answer = await client.call("mail/search", { query: this.query, limit: PAGE, ...(this.#ranked ? { ranked: true } : {}), ...(known.length ? { before: known[known.length - 1].id } : {}) });
    this.#more = !this.#ranked && answer.letters.length === PAGE;
    return [...known, ...answer.letters.map(summaryOf)];
  }

  async #grow() {
    const known = this.source.value;
    if (!known || !this.#more || known.length >= MOST) return;
    this.#more = false;
    this.source.value = await this.#page(known).catch(() => known);
    redraw();
  }

  template() {
    this.list.draw();
    const many = this.source.value?.length ?? 0;
    const head = html`<header class="pane-head"><h1>${this.title}</h1>${many ? html`<span class="faint">${counted(many, "letter")}${this.#more ? " or more" : ""}</span>` : nothing}<span class="grow"></span>
      ${this.query ? html`<a class="button" aria-current=${this.#ranked ? nothing : "true"} href=${addressOf("search", "", { q: this.query })}>Newest</a>
        <a class="button" aria-current=${this.#ranked ? "true" : nothing} href=${addressOf("search", "", { q: this.query, best: "1" })}>Best</a>` : nothing}</header>`;
    if (!this.query) return html`<div class="panes single"><section class="pane search-words" tabindex="-1" aria-label="Search">${head}<div class="state empty"><h2>Search all letters</h2><p>Press <kbd>/</kbd> and type words. These narrow it down:</p>
      <dl class="keys">${WORDS.map(([word, means]) => html`<div><dt><code>${word}</code></dt><dd>${means}</dd></div>`)}</dl></div></section></div>`;
    const list = framed(this.source, {
      isEmpty: (letters) => !letters.length,
      empty: () => ({ title: "Nothing was found.", text: "Every word must be in the letter. Try fewer words, or from: to: kind: tag: before: after:" }),
      content: () => this.list.element,
    });
    return this.panes.template(head, list);
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    return this.panes.key(name);
  }

  commands() {
    return [{ name: "Best hits first", key: "", run: () => go(addressOf("search", "", { q: this.query, best: "1" })) }];
  }

  focus() {
    if (this.query) this.list.focus();
    else focusOn(".search-words");
  }
}

const field = () => /** @type {HTMLInputElement | null} */ (document.getElementById("search"));

/** Write a query into the field of the page. @param {string} query */
function write(query) {
  const input = field();
  if (input) input.value = query;
}

export const search = new Search();

// -- one letter or thread by itself

class Page {
  /** @param {"Letter" | "Thread"} title */
  constructor(title) {
    this.title = title;
  }

  /** @param {import("../app.js").Place} place */
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
    focusOn(".pages");
  }
}

export const letterPage = new Page("Letter");
export const threadPage = new Page("Thread");
