/**
 * What all views stand on: drawing, addresses, the connection, answers with their states, and what waits for the
 * person.
 *
 * Pull is the truth: a notification only says when to ask. The first frame of the connection carries the token of the
 * visit; nothing is sent by itself, as a cookie would be. A call that was under way when the connection broke fails
 * with `Lost`: what only reads is asked again, and an action is said again with its own key. After each new connection
 * every view looks anew, because notifications may have been missed.
 */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { clockTime, visible } from "./text.js";

// -- when the page is drawn: once for each frame in which something changed, and never while nobody sees it

let isPlanned = false;
/** @type {() => void} */
let draw = () => {};

/** @param {() => void} how */
export function drawWith(how) {
  draw = how;
}

/** Draw the page with the next frame. */
export function redraw() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    draw();
  });
}

/** Focus the first element that matches, if there is one. @param {string} selector */
export function focusOn(selector) {
  /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus({ preventScroll: true });
}

// -- addresses: `#/view/NAME?filter`; a step to another view is an entry of the history, what is picked replaces it

/** @typedef {{view: string, name: string, filters: URLSearchParams}} Place */

/** @param {string} hash @returns {Place} */
export function placeOf(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {} // not written by this page: taken as it is
  return { view: view || "waiting", name, filters: new URLSearchParams(query) };
}

/**
 * @param {string} view
 * @param {string} [name]
 * @param {Record<string, string | undefined | null>} [filters]
 * @returns {string}
 */
export function addressOf(view, name = "", filters = {}) {
  const kept = Object.entries(filters).filter((/** @type {[string, any]} */ [, value]) => value);
  const query = new URLSearchParams(/** @type {[string, string][]} */ (kept)).toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

/** @param {string} address */
export function go(address) {
  if (location.hash !== address) location.hash = address;
}

/** Change the address of the place one is at. @param {string} address */
export function stay(address) {
  if (location.hash !== address) history.replaceState(history.state, "", address);
}

// -- the connection: JSON-RPC over a WebSocket, opened again whenever it breaks

/** @typedef {{person: string, acts: boolean, operator: boolean, proven: boolean, started_at: string}} Visit */

/** A refusal of the service, in its own words. */
export class Refusal extends Error {
  /** @param {{message?: string, code?: number, data?: Record<string, any>}} error */
  constructor(error) {
    super(visible(error.message ?? "the service refused"));
    this.kind = String(error.data?.name ?? "");
    this.hint = visible(error.data?.hint ?? "");
    this.field = String(error.data?.field ?? "");
    this.retryable = Boolean(error.data?.retryable);
  }

  /** Whether other rights are needed. */
  get forbids() {
    return this.kind === "NotAllowed";
  }
}

/** The connection broke before the answer came. */
export class Lost extends Refusal {
  constructor() {
    super({ message: "The connection broke before the answer came.", data: { name: "Lost", retryable: true } });
  }
}

const FIRST_PAUSE = 300; // milliseconds until the first new try
const LONGEST_PAUSE = 8000;
const SILENCE = 60000; // milliseconds without an answer after which a connection is taken for broken

class Client extends EventTarget {
  /** @type {"connecting" | "open" | "broken" | "over"} */
  status = "connecting";
  /** @type {Visit | null} */
  visit = null;
  brokenSince = 0; // when the connection broke
  nextTry = 0; // when it is tried again
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void, sent: number}>} */
  #calls = new Map();
  /** @type {(() => void)[]} */
  #waiting = []; // calls that wait for the connection
  #number = 0;
  #failures = 0;
  /** @type {number | undefined} */
  #timer = undefined;

  /** @param {string} address @param {() => string | null} token */
  constructor(address, token) {
    super();
    this.address = address;
    this.token = token;
    addEventListener("online", () => this.reconnect());
    document.addEventListener("visibilitychange", () => document.hidden || this.reconnect());
    setInterval(() => this.#checkSilence(), 5000);
  }

  connect() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.address);
    this.#socket = socket;
    socket.onopen = () => this.#authenticate(socket);
    socket.onmessage = (event) => socket === this.#socket && this.#receive(String(event.data));
    socket.onclose = (event) => socket === this.#socket && this.#broken(event.code);
  }

  /** Try again now, where a next try was planned. */
  reconnect() {
    if (this.status === "broken") this.connect();
  }

  /** End the connection for good: the visit is over. @param {string} why */
  end(why) {
    this.status = "over";
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#fail();
    this.dispatchEvent(new CustomEvent("over", { detail: why }));
  }

  /**
   * Call a method. A call that only reads waits for the connection; any other fails at once without one.
   * @param {string} method @param {Record<string, unknown>} [params] @param {{reads?: boolean}} [options]
   * @returns {Promise<any>}
   */
  async call(method, params = {}, { reads = true } = {}) {
    if (this.status === "over") throw new Lost();
    if (this.status !== "open") {
      if (!reads) throw new Lost();
      await new Promise((resolve) => this.#waiting.push(() => resolve(undefined)));
    }
    return this.#send(method, params);
  }

  /**
   * Act as the person: the process that holds the key carries it out.
   * @param {string} verb
   * @param {Record<string, unknown>} params
   */
  act(verb, params) {
    return this.call("visit/act", { verb, params }, { reads: false });
  }

  /** @param {string} method @param {Record<string, unknown>} params @returns {Promise<any>} */
  #send(method, params) {
    const id = (this.#number += 1);
    return new Promise((resolve, reject) => {
      const text = JSON.stringify({ jsonrpc: "2.0", id, method, params }, sendable);
      this.#calls.set(id, { resolve, reject, sent: Date.now() });
      this.#socket?.send(text);
    });
  }

  /** @param {WebSocket} socket */
  async #authenticate(socket) {
    try {
      const { visit } = await this.#send("authenticate", { token: this.token() ?? "" });
      if (socket !== this.#socket) return;
      this.visit = visit;
      this.status = "open";
      this.#failures = 0;
      this.brokenSince = 0;
      for (const go of this.#waiting.splice(0)) go();
      this.dispatchEvent(new Event("open"));
    } catch (error) {
      if (error instanceof Refusal && error.forbids) this.end(error.message);
    }
  }

  /** @param {string} text */
  #receive(text) {
    const frame = parseExactly(text);
    if (frame.id === undefined || frame.id === null) {
      this.dispatchEvent(new CustomEvent(String(frame.method), { detail: frame.params }));
      return;
    }
    const call = this.#calls.get(frame.id);
    this.#calls.delete(frame.id);
    if (frame.error) call?.reject(new Refusal(frame.error));
    else call?.resolve(frame.result);
  }

  /** @param {number} code */
  #broken(code) {
    this.#socket = null;
    this.#fail();
    if (this.status === "over") return;
    if (code === 1008 && this.status === "open") return this.end("The visit has ended.");
    if (this.status === "open" || !this.brokenSince) this.brokenSince = Date.now();
    this.status = "broken";
    const pause = Math.min(FIRST_PAUSE * 2 ** this.#failures, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.nextTry = Date.now() + pause;
    this.#timer = setTimeout(() => this.connect(), pause);
    this.dispatchEvent(new Event("broken"));
  }

  #fail() {
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const call of calls) call.reject(new Lost());
  }

  /** A connection over which no answer comes is closed: a computer that slept does not notice by itself. */
  #checkSilence() {
    const oldest = Math.min(...[...this.#calls.values()].map((call) => call.sent));
    if (Date.now() - oldest > SILENCE) this.#socket?.close();
  }
}

/** The service reads no such text. @param {string} _key @param {unknown} value */
function sendable(_key, value) {
  if (typeof value === "string" && /\0|\p{Cs}/u.test(value))
    throw new Refusal({ message: "It holds a NUL or half a surrogate pair, which cannot be sent." });
  return value;
}

/** @param {string} text @returns {any} the JSON, with integers that a browser would round as BigInt */
function parseExactly(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = /** @type {(key: string, value: unknown, context?: {source: string}) => unknown} */ (
    (_key, value, context) =>
      typeof value === "number" && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source)
        ? BigInt(context.source)
        : value
  );
  return JSON.parse(text, exact);
}

// -- what the service answered to one question, how old that is, and the four states of a view

const SLOW = 300; // milliseconds until "loading" is shown
export const STALE = 10000; // milliseconds without news after which an answer is called old

/** @template T */
export class Source {
  /** @type {T | undefined} */
  value = undefined;
  /** @type {Refusal | null} */
  error = null;
  at = 0; // when the answer came
  slow = false; // no answer yet, for longer than SLOW
  #latest = 0; // the number of the last question
  #answered = 0;
  #again = false;
  #under = false; // a question is under way
  #soon = 0; // the timer of a question that is asked soon
  /** @type {() => void} */
  #onAnswer = () => {};

  /** @param {() => Promise<T>} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** Call a function after each answer, also while the page is hidden. @param {() => void} onAnswer */
  listen(onAnswer) {
    this.#onAnswer = onAnswer;
  }

  /** Ask anew. While a question is under way, one more is asked after it. @returns {Promise<void>} */
  async load() {
    if (this.#under) {
      this.#again = true;
      return;
    }
    this.#under = true;
    const number = (this.#latest += 1);
    const timer = setTimeout(() => {
      this.slow = true;
      redraw();
    }, SLOW);
    try {
      const value = await this.ask();
      if (number > this.#answered) Object.assign(this, { value, error: null, at: Date.now() });
      this.#answered = number;
    } catch (error) {
      if (number > this.#answered && !(error instanceof Lost))
        this.error = error instanceof Refusal ? error : new Refusal({ message: String(error) });
    } finally {
      clearTimeout(timer);
      this.slow = this.#under = false;
      this.#onAnswer();
      redraw();
    }
    if (this.#again) {
      this.#again = false;
      await this.load();
    }
  }

  /** Ask anew, but not within so many milliseconds of the last answer: then soon after. @param {number} pause */
  refresh(pause) {
    if (this.#soon) return;
    const left = this.at + pause - Date.now();
    if (left <= 0) return void this.load();
    this.#soon = setTimeout(() => {
      this.#soon = 0;
      this.load();
    }, left);
  }

  /** Forget the answer: the question is another one now. */
  reset() {
    this.value = undefined;
    this.error = null;
    this.at = 0;
    this.#answered = this.#latest += 1;
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
  const warning = error
    ? html`<div class="notice bad" role="alert"><span>${error.message}</span>
    <button type="button" @click=${() => source.load()}>Try again</button></div>`
    : nothing;
  return html`${warning}${isEmpty(value) ? nothingHere(empty()) : content(value)}`;
}

function loading() {
  return html`<div class="state loading" aria-busy="true"><p>Loading…</p>
    <div class="bones" aria-hidden="true">${Array.from({ length: 8 }, () => html`<i></i>`)}</div></div>`;
}

/** @param {Empty} words */
function nothingHere({ title, text, command }) {
  return html`<div class="state empty"><svg viewBox="0 0 48 48" aria-hidden="true"><path
    d="M6 14h36v22H6z M6 15l18 13 18-13" /></svg>
    <h2>${title}</h2>${text ? html`<p>${text}</p>` : nothing}${command ? html`<p><code>${command}</code></p>`
      : nothing}</div>`;
}

/** @param {Refusal} error */
function refused(error) {
  return html`<div class="state refused" role="alert"><svg viewBox="0 0 48 48" aria-hidden="true"><path
    d="M12 22h24v18H12z M17 22v-6a7 7 0 0 1 14 0v6" /></svg>
    <h2>Not allowed</h2><p>${error.message}</p>
    ${error.hint ? html`<p>This would be: <code>${error.hint}</code></p>`
      : html`<p>Open the dashboard with more rights: <code>postroom dashboard --operator</code></p>`}</div>`;
}

/** @param {Refusal} error @param {() => void} again */
export function failed(error, again) {
  return html`<div class="state failed" role="alert"><h2>This cannot be shown now</h2><p>${error.message}</p>
    ${error.hint ? html`<p>${error.hint}</p>` : nothing}${error.kind.startsWith("Unknown") ? nothing
      : html`<button type="button" @click=${again}>Try again</button>`}</div>`;
}

/** @param {number} at @param {string} why */
export function stale(at, why) {
  return html`<div class="notice stale" role="status"><span>As of <time>${clockTime(at)}</time>. ${why}</span></div>`;
}

// -- what views are made of

/** @typedef {import("./list.js").List<any>} List */

/** What most views do alike: one source, and one list. */
export class Page {
  /** @type {Source<any>} */
  source = new Source(() => Promise.resolve());
  /** @type {List | null} */
  list = null;

  /** @param {Place} _place */
  enter(_place) {
    this.source.load();
  }

  refresh() {
    this.source.refresh(1900);
  }

  at() {
    return this.source.at;
  }

  focus() {
    this.list?.focus();
  }
}

/** @param {string} label @param {unknown} head @param {unknown} content @returns {unknown} a view without a reader */
export function single(label, head, content) {
  return html`<div class="panes single"><section class="pane" aria-label=${label}>
    <header class="pane-head"><h1>${label}</h1>${head}</header>${content}</section></div>`;
}

/**
 * @param {string} label @param {string[]} columns their names; behind a # are numbers
 * @param {unknown[][]} rows
 */
export function table(label, columns, rows) {
  const look = (/** @type {number} */ at) => (columns[at].startsWith("#") ? "number" : "");
  const heads = columns.map((name, at) => html`<th scope="col" class=${look(at)}>${name.replace("#", "")}</th>`);
  const row = (/** @type {unknown[]} */ cells) =>
    html`<tr>${cells.map((cell, at) => html`<td class=${look(at)}>${cell}</td>`)}</tr>`;
  return html`<div class="wide" tabindex="0" role="group" aria-label=${label}><table>
    <thead><tr>${heads}</tr></thead><tbody>${rows.map(row)}</tbody></table></div>`;
}

// -- what all views share: who the person is, what waits, and what can be done with it

/** @typedef {import("./types.js").Entry} Entry @typedef {import("./types.js").ActionTable} ActionTable */

const TOKEN = "postroom.visit";

/** @type {Map<string, string>} where a browser has no storage, what is written lives as long as the page */
const memory = new Map();

/** @param {string} name @returns {string | null} a value of this page's storage */
export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return memory.get(name) ?? null;
  }
}

/** @param {string} name @param {string | null} value */
export function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    if (value === null) memory.delete(name);
    else memory.set(name, value);
  }
}

export const token = () => stored(TOKEN);
/** @param {string | null} value */
export const keepToken = (value) => store(TOKEN, value);
/** @param {StorageEvent} event */
export const isToken = (event) => event.key === TOKEN;

export const client = new Client(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, token);

export const person = () => client.visit?.person ?? "human";
export const mayAct = () => client.visit?.acts ?? false;
export const isOperator = () => mayAct() && (client.visit?.operator ?? false);

const PAGE = 1000; // entries of what waits that are asked for at first, and each time that more are wanted

/** How many entries are asked for, how many more wait, and whose letters are not among them. */
export const waitingPage = {
  limit: PAGE,
  more: 0,
  /** @type {{sender: string, letters: number}[]} */
  senders: [],
  next() {
    this.limit += PAGE;
    return waiting.load();
  },
};

/** @type {Source<Entry[]>} */
export const waiting = new Source(async () => {
  const answer = await client.call("mail/waiting", { agent_id: person(), limit: waitingPage.limit, opened: true });
  Object.assign(waitingPage, { more: answer.more, senders: answer.senders });
  return answer.waiting;
});

/** What stands still until the person acts: everything but news. */
export const blocked = () => (waiting.value ?? []).filter((entry) => entry.what !== "news");

/** @type {Source<ActionTable>} */
export const actions = new Source(() => client.call("mail/actions"));

/** @param {Entry} entry @returns {import("./types.js").Action[]} */
export function offered(entry) {
  const table = actions.value?.offered ?? {};
  return table[["task", "sent"].includes(entry.what) ? `${entry.what} ${entry.state}` : entry.what] ?? [];
}

/** @param {string} letter @returns {Entry | undefined} */
export const entryOf = (letter) => waiting.value?.find((entry) => entry.letter === letter);

/** What the page says beside its name, over every view: good news for a moment, a problem for longer. */
export const notice = { text: "", isBad: false, until: 0 };
const GOOD = 5000; // milliseconds
const BAD = 15000;
const A_CHARACTER = 80;

/** @param {string} text @param {boolean} [isBad] */
export function say(text, isBad = false) {
  const shown = isBad ? BAD : Math.max(GOOD, text.length * A_CHARACTER);
  Object.assign(notice, { text, isBad, until: Date.now() + shown });
  setTimeout(redraw, shown + 50);
  redraw();
}

/** @param {unknown} error @returns {string} what is wrong and what to do, each of them once */
export function wordsOf(error) {
  const words = error instanceof Error ? error.message : String(error);
  const hint = error instanceof Refusal ? error.hint : "";
  return hint && !words.includes(hint) ? `${words} ${hint}` : words;
}

/** @param {unknown} error */
export function sayError(error) {
  say(wordsOf(error), true);
}
