/**
 * The text that is being written: for an action on one letter or several, or a new letter.
 *
 * What is written is kept in the page's storage from its first character on, by letter and action, with the key under
 * which it is sent. Sent again after a lost connection, it arrives once. Esc goes back and keeps it. One text for several
 * letters is a draft of its own, and each letter has its own key.
 */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { client, Lost, mayAct, person, redraw, Refusal, say, sayError, Source, store, stored, waiting, wordsOf } from "./app.js";
import { counted, oneLine } from "./text.js";

/** @typedef {import("./types.js").Entry} Entry @typedef {import("./types.js").Action} Action */

const DRAFT = "postroom.draft";
const KEPT = 30 * 86_400_000; // milliseconds for which a draft is kept whose letter no longer waits
/** @param {string} letter @param {string} action */
const draftName = (letter, action) => `${DRAFT} ${letter} ${action}`;
/** @param {boolean} repeated */
const once = (repeated) => (repeated ? " It had arrived the first time, and was sent once." : "");
const newKey = () => crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");

/** @typedef {{words: string, to: string, subject: string, key: string, tried: boolean, at: number}} Draft */

/** @param {string} name @returns {Draft} */
function draftOf(name) {
  const none = { words: "", to: "", subject: "", key: "", tried: false, at: 0 };
  try {
    return { ...none, ...JSON.parse(stored(name) ?? "{}") };
  } catch {
    return none;
  }
}

/** @param {string} letter @returns {boolean} whether words about it were written and not sent */
export function hasDraft(letter) {
  try {
    return Object.keys(localStorage).some((name) => name.startsWith(`${DRAFT} ${letter} `));
  } catch {
    return false;
  }
}

/** Delete the drafts of letters that no longer wait, a while after they were written. */
function sweep() {
  if (!waiting.value) return;
  const waits = new Set(waiting.value.map((entry) => entry.letter)).add("new");
  try {
    for (const name of Object.keys(localStorage).filter((one) => one.startsWith(`${DRAFT} `))) {
      const letters = name.slice(DRAFT.length + 1).split(" ")[0].split("+");
      if (!letters.some((letter) => waits.has(letter)) && Date.now() - draftOf(name).at > KEPT) store(name, null);
    }
  } catch {
    // Nothing is stored in this browser.
  }
}

/** An action that is not in the service's table: a verb of its own. @typedef {{verb: string, params: Record<string, unknown>, heading: string, done: string, words?: string}} Own */

const MOST_NAMES = 1000;

class Composer {
  /** @type {Action | null} */
  action = null;
  /** @type {Entry[]} */
  entries = [];
  /** @type {Own | null} */
  own = null;
  words = "";
  to = "";
  subject = "";
  draft = ""; // its name in the storage
  key = "";
  tried = false; // whether it was sent, and no answer came
  several = false;
  problem = "";
  isSending = false;
  givesTask = false; // a new letter is a task
  /** The agents whose names are offered. @type {Source<string[]>} */
  names = new Source(async () => {
    const { queues } = await client.call("mail/queues", { limit: MOST_NAMES });
    return queues.map((/** @type {import("./types.js").Queue} */ queue) => queue.agent);
  });
  /** @type {(ids: string[], action: string) => void} */
  settled = () => {};
  /** @type {() => void} */
  closed = () => {};

  get isOpen() {
    return this.action !== null;
  }

  get isNew() {
    return this.action?.name === "compose";
  }

  get #about() {
    return this.entries.length ? this.entries.map((entry) => entry.letter) : [this.isNew ? "new" : String(this.own?.params.id ?? "new")];
  }

  /**
   * Begin a text, or go on with its draft; an action that takes no words is carried out.
   * @param {Action} action @param {Entry[]} entries @param {Own | null} [own]
   */
  begin(action, entries, own = null) {
    if (!mayAct()) return say("This page may only look now. Type `postroom dashboard` in a terminal to answer.", true);
    Object.assign(this, { action, entries, own, problem: "", isSending: false, givesTask: false });
    sweep();
    const draft = draftName(this.#about.join("+"), action.name);
    const kept = draftOf(draft);
    Object.assign(this, { draft, key: kept.key || newKey(), tried: kept.tried, several: entries.length > 1, words: kept.words, to: kept.to || String(own?.params.to ?? ""), subject: kept.subject });
    if (!action.asks && !own) return void this.send();
    redraw();
    requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(this.isNew && !this.to ? "compose-to" : "compose-words")?.focus()));
  }

  /** Write a new letter, or give a task. @param {string} [to] @param {boolean} [isTask] */
  write(to = "", isTask = false) {
    this.begin({ key: "w", name: "compose", asks: isTask ? "What is to be done?" : "Your letter:", optional: false }, []);
    Object.assign(this, { to: to || this.to, givesTask: isTask });
    this.names.load();
  }

  /** Go back; what was written is kept. */
  close() {
    const kept = this.words.trim() !== "";
    this.action = null;
    if (kept) say("Kept: the same key shows it again.");
    redraw();
    this.closed();
  }

  #keep() {
    const { words, to, subject, key, tried } = this;
    store(this.draft, words || to || subject || tried ? JSON.stringify({ words, to, subject, key, tried, at: Date.now() }) : null);
  }

  async send() {
    const { action, entries, own, draft } = this;
    if (!action || this.isSending) return;
    if (action.asks && !this.words.trim() && !action.optional) return this.#refuse("It needs words. Esc goes back.");
    if (this.isNew && !this.to.trim()) return this.#refuse("It needs a name: to whom?");
    this.tried = action.asks !== "";
    this.#keep();
    this.isSending = true;
    redraw();
    /** @type {string[]} */
    const done = [];
    /** @type {string[]} */
    const gone = [];
    let said = "";
    for (const letter of this.#about) {
      const key = this.several ? `${this.key}.${letter}` : this.key;
      try {
        said = await this.#perform(letter, key);
        done.push(letter);
      } catch (error) {
        if (error instanceof Refusal && error.kind === "Conflict" && entries.length) {
          gone.push(letter);
          said = error.message;
          continue;
        }
        this.isSending = false;
        this.entries = entries.filter((entry) => !done.includes(entry.letter) && !gone.includes(entry.letter));
        if (done.length) this.settled(done, action.name);
        if (!action.asks && !own) { this.action = null; sayError(error); return; }
        return this.#refuse(this.#why(error));
      }
    }
    this.isSending = false;
    if (!done.length && this.words.trim()) {
      waiting.load();
      return this.#refuse(`${said} Your words are kept here.`);
    }
    store(draft, null);
    this.action = null;
    const all = done.length > 1 ? `Done with ${counted(done.length, "letter")}.${gone.length ? ` ${gone.length} no longer waited for you.` : ""}` : said;
    say(all, done.length === 0);
    this.settled(done, action.name);
    waiting.load();
    this.closed();
  }

  /** @param {unknown} error @returns {string} why it was not sent, and what Enter does next */
  #why(error) {
    if (!(error instanceof Refusal)) return String(error);
    if (error instanceof Lost) return `${error.message} Enter sends it again; it arrives once.`;
    if (error.kind !== "IdTaken") return wordsOf(error);
    this.key = newKey();
    this.#keep();
    waiting.load();
    return this.isNew || this.own?.verb === "reply" ? "Your first words were sent before the connection broke. Enter sends these as another letter." : error.message;
  }

  /** @param {string} letter @param {string} key @returns {Promise<string>} what was done */
  async #perform(letter, key) {
    const words = this.words.trim();
    if (this.own) {
      const { repeated } = await client.act(this.own.verb, { ...this.own.params, [this.own.words ?? "body"]: words, key });
      return this.own.done + once(repeated);
    }
    if (this.isNew) {
      const receipt = await client.act(this.givesTask ? "give_task" : "send", { to: this.to.trim(), subject: this.subject.trim(), body: words, key });
      const unknown = (receipt.unknown ?? []).filter((/** @type {string} */ name) => name !== person()).map((/** @type {string} */ name) => oneLine(name, 60));
      const waits = unknown.length ? ` No agent named ${unknown.join(" or ")} has been seen here yet. The letter will wait.` : "";
      return `${this.givesTask ? "Given" : "Sent"} to ${oneLine(this.to, 60)}.${waits}${once(receipt.repeated)}`;
    }
    const entry = this.entries.find((one) => one.letter === letter);
    const answer = await client.act("act", { letter, action: this.action?.name, words, key, state: entry?.state ?? null });
    return answer.done + once(answer.repeated);
  }

  /** @param {string} why */
  #refuse(why) {
    this.problem = why;
    redraw();
    document.getElementById("compose-words")?.focus();
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    if (event.isComposing) return;
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (!event.shiftKey && !isTouch))) this.send();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"words" | "to" | "subject"} field @param {Event} event */
  #typed(field, event) {
    this[field] = /** @type {HTMLInputElement} */ (event.target).value;
    this.problem = "";
    this.#keep();
  }

  template() {
    const { action, entries } = this;
    if (!action) return nothing;
    const many = entries.length > 1;
    const heading = this.own?.heading ?? (this.givesTask ? "New task" : this.isNew ? "New letter" : many ? `${begun(action.name)} ${counted(entries.length, "letter")}` : `${begun(action.name)}: ${oneLine(entries[0]?.subject || entries[0]?.text, 80)}`);
    return html`<form class="composer" aria-label=${heading} @submit=${(/** @type {Event} */ event) => { event.preventDefault(); this.send(); }}
        @keydown=${(/** @type {KeyboardEvent} */ event) => this.#keyed(event)}>
      <h3><bdi>${heading}</bdi>${!this.isNew && !many && entries[0] ? html` <span class="faint">to <bdi>${oneLine(entries[0].from, 60)}</bdi></span>` : nothing}</h3>
      ${this.isNew ? html`<div class="fields"><label>To  <input id="compose-to" list="compose-names" autocomplete="off" spellcheck="false" .value=${this.to} @input=${(/** @type {Event} */ event) => this.#typed("to", event)}></label>
        <datalist id="compose-names">${(this.names.value ?? []).map((name) => html`<option value=${name}></option>`)}</datalist>
        <label>Subject <input autocomplete="off" .value=${this.subject} @input=${(/** @type {Event} */ event) => this.#typed("subject", event)}></label></div>` : nothing}
      <label for="compose-words">${action.asks}</label>
      <textarea id="compose-words" rows="4" .value=${this.words} ?readonly=${this.isSending} aria-describedby="compose-help compose-problem"
        @input=${(/** @type {Event} */ event) => this.#typed("words", event)}></textarea>
      <p id="compose-problem" class="problem" role="alert">${this.problem}</p>
      <div class="bar"><button class="primary" ?disabled=${this.isSending}>${this.isSending ? "Sending…" : this.givesTask ? "Give" : this.isNew ? "Send" : begun(action.name)}</button>
        <button type="button" @click=${() => this.close()}>Back</button>
        <span id="compose-help" class="faint hint"><kbd>Enter</kbd> sends <kbd>Shift</kbd> <kbd>Enter</kbd> new line <kbd>Esc</kbd> goes back and keeps it</span></div>
    </form>`;
  }
}

/** @param {string} name */
export const begun = (name) => name.charAt(0).toUpperCase() + name.slice(1);

export const composer = new Composer();
