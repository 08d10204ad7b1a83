/**
 * What the person types: keys, dialogs, and the text of an answer or a letter.
 *
 * Keys mean what they mean in `postroom inbox`; they mean nothing while one types, composes a character, holds a
 * modifier or is in a dialog. Single keys can be turned off, for people who speak to their computer.
 *
 * What is written is kept in the page's storage from its first character on, by letter and action, with the key under
 * which it is sent. Sent again after a lost connection, it arrives once. Esc goes back and keeps it. One text for
 * several letters is a draft of its own, and each letter has its own key.
 */

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import {
  actions,
  client,
  Lost,
  mayAct,
  person,
  redraw,
  Refusal,
  say,
  sayError,
  Source,
  store,
  stored,
  waiting,
  wordsOf,
} from "./app.js";
import { counted, oneLine } from "./text.js";

// -- keys by name

const NAMES = /** @type {Record<string, string>} */ ({
  ArrowUp: "up",
  ArrowDown: "down",
  ArrowLeft: "left",
  ArrowRight: "right",
  PageUp: "pgup",
  PageDown: "pgdn",
  Home: "home",
  End: "end",
  Enter: "enter",
  Escape: "esc",
  " ": "space",
});
const SINGLE = "postroom.keys";

export const singleKeys = () => stored(SINGLE) !== "off";
export const turnSingleKeys = () => store(SINGLE, singleKeys() ? "off" : null);

/** @param {KeyboardEvent} event @returns {string} the name of the key; empty where it is none of ours */
export function keyOf(event) {
  if (event.isComposing || event.defaultPrevented) return "";
  const target = /** @type {Element} */ (event.target);
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") return "palette";
  if (event.ctrlKey || event.metaKey || event.altKey) return "";
  if (target.closest?.("input, textarea, select, dialog, [contenteditable]")) return "";
  const name = NAMES[event.key] ?? (event.key.length === 1 ? event.key : "");
  if ((name === "enter" || name === "space") && target.closest?.("button, a, summary")) return "";
  if (target.closest?.("pre, .wide") && ["left", "right"].includes(name)) return "";
  if (name.length === 1 && !singleKeys()) return "";
  return name;
}

/** What each key is for: in every view. */
const EVERYWHERE = [
  ["1 … 8", "the views, in the order of the menu"],
  ["/", "search"],
  ["Ctrl-K  .", "commands by name"],
  ["?", "this page"],
  ["w", "write a new letter"],
];
const LISTS = [
  ["↓ ↑  j k", "the one below, the one above"],
  ["Space  g G", "a page on; to the beginning, to the end"],
  ["Enter  o", "open it: the letter whole, and its thread"],
  ["n p", "when one is open: the next, the one before"],
  ["q Esc ←", "back to the list"],
  ["v", "mark it; what follows is for all that are marked"],
  ["y", "copy its id"],
];
const WAITING = [
  ["s", "what you sent, and back to what waits"],
  ["f", "show news, or fold them"],
];
const VIEWS = [
  [", t", "Flow: hold what arrives; a table in place of the picture"],
  ["s", "Agents: sort otherwise"],
  ["← →  i x", "Tasks: the next column; give one; cancel yours"],
  ["R", "Dead letters: revive"],
];

// -- the dialogs

/** @typedef {{name: string, key: string, run: () => void}} Command */

const dialog = document.createElement("dialog");
document.body.append(dialog);

/** @param {unknown} content @param {string} label @param {string} [look] */
function open(content, label, look = "") {
  dialog.className = look;
  dialog.setAttribute("aria-label", label);
  render(content, dialog);
  if (!dialog.open) dialog.showModal();
}

export const close = () => dialog.close();
dialog.addEventListener("click", (event) => event.target === dialog && close());

/** @param {string[][]} rows */
const keyTable = (rows) =>
  html`<dl class="keys">${rows.map(([keys, means]) => html`<div><dt>${keys.split(" ").map((key) => (key && key !== "…"
    ? html`<kbd>${key}</kbd> ` : key))}</dt><dd>${means}</dd></div>`)}</dl>`;

export function help() {
  const table = Object.entries({ ...actions.value?.keys, e: "answer; of a task you took on: its result" }).filter(
    ([key]) => key !== "w",
  );
  open(
    html`<header><h2>Keys</h2><button type="button" @click=${close}>Close <kbd>Esc</kbd></button></header>
    <div class="columns"><section><h3>Everywhere</h3>${keyTable(EVERYWHERE)}<h3>Lists and
      letters</h3>${keyTable(LISTS)}<h3>In one view</h3>${keyTable(VIEWS)}</section>
    <section><h3>What waits for you</h3>${keyTable([...table, ...WAITING])}
    <h3>While you write</h3>${keyTable([
      ["Enter", "sends it"],
      ["Esc", "goes back; what you wrote is kept"],
    ])}
    <label class="switch"><input type="checkbox" .checked=${singleKeys()} @change=${() => {
      turnSingleKeys();
      help();
    }}> Single-letter shortcuts</label></section></div>`,
    "Keys",
    "help",
  );
}

let query = "";
let at = 0;

/** @param {Command[]} commands */
export function palette(commands) {
  query = "";
  at = 0;
  drawPalette(commands);
  dialog.querySelector("input")?.focus();
}

/** @param {Command[]} commands */
function drawPalette(commands) {
  const words = query.toLowerCase().split(/\s+/);
  const found = commands.filter((one) => words.every((word) => one.name.toLowerCase().includes(word)));
  at = Math.max(0, Math.min(at, found.length - 1));
  const run = (/** @type {Command | undefined} */ one) => {
    close();
    one?.run();
  };
  open(
    html`<input type="text" role="combobox" aria-label="A command" aria-expanded="true" aria-controls="commands"
      aria-activedescendant=${found.length ? `command-${at}` : nothing}
      placeholder="What do you want to do?" autocomplete="off" .value=${query}
      @input=${(/** @type {Event} */ event) => {
        query = /** @type {HTMLInputElement} */ (event.target).value;
        at = 0;
        drawPalette(commands);
      }}
      @keydown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && !event.isComposing) run(found[at]);
        else if (event.key === "ArrowDown") at += 1;
        else if (event.key === "ArrowUp") at -= 1;
        else return;
        event.preventDefault();
        if (dialog.open) drawPalette(commands);
      }}>
    <ul id="commands" role="listbox" aria-label="Commands">${found.map((one, place) => html`<li role="option"
      id="command-${place}" aria-selected=${place === at}
        @click=${() => run(one)}><span>${one.name}</span>${one.key ? html`<kbd>${one.key}</kbd>` : nothing}</li>`)}</ul>
    ${found.length ? nothing : html`<p class="faint">No command has this name.</p>`}`,
    "Commands",
    "palette",
  );
}

/**
 * Ask before something that cannot be taken back. With a number, the person types it.
 * @param {{title: string, text: string, button: string, number?: number}} question @returns {Promise<boolean>}
 */
export function confirm({ title, text, button, number }) {
  let typed = "";
  return new Promise((resolve) => {
    const answer = (/** @type {boolean} */ yes) => {
      resolve(yes);
      close();
    };
    dialog.addEventListener("close", () => resolve(false), { once: true });
    const draw = () =>
      open(
        html`<form @submit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          if (number === undefined || typed.trim() === String(number)) answer(true);
        }}>
      <h2>${title}</h2><p>${text}</p>
      ${
        number === undefined
          ? nothing
          : html`<label>Type the number ${number} to go on <input inputmode="numeric" autocomplete="off" .value=${typed}
          @input=${(
              /** @type {Event} */ event,
            ) => {
              typed = /** @type {HTMLInputElement} */ (event.target).value;
              draw();
            }}></label>`
      }
      <div class="bar"><button class="danger"
        ?disabled=${number !== undefined && typed.trim() !== String(number)}>${button}</button><button type="button"
        @click=${() => answer(false)}>No</button></div></form>`,
        title,
        "confirm",
      );
    draw();
    /** @type {HTMLElement | null} */ (dialog.querySelector(number === undefined ? "button" : "input"))?.focus();
  });
}

// -- the text that is being written

/** @typedef {import("./types.js").Entry} Entry @typedef {import("./types.js").Action} Action */

const DRAFT = "postroom.draft";
const KEPT = 30 * 86_400_000; // milliseconds for which a draft is kept whose letter no longer waits
/** @param {string} letter @param {string} action */
const draftName = (letter, action) => `${DRAFT} ${letter} ${action}`;
/** @param {boolean} repeated */
const once = (repeated) => (repeated ? " It had arrived the first time, and was sent once." : "");
const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");

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

/** @param {string} [about] letters @returns {string[]} the names of drafts; none where a browser has no storage */
function drafts(about = "") {
  try {
    return Object.keys(localStorage).filter((name) => name.startsWith(`${DRAFT} ${about}`));
  } catch {
    return [];
  }
}

/** @param {string} letter @returns {boolean} whether words about it were written and not sent */
export const hasDraft = (letter) => drafts(`${letter} `).length > 0;

/** Delete the drafts of letters that no longer wait, a while after they were written. */
function sweep() {
  if (!waiting.value) return;
  const waits = new Set(waiting.value.map((entry) => entry.letter)).add("new");
  for (const name of drafts()) {
    const letters = name.split(" ")[1].split("+");
    if (!letters.some((letter) => waits.has(letter)) && Date.now() - draftOf(name).at > KEPT) store(name, null);
  }
}

/**
 * An action that is not in the service's table: a verb of its own.
 * @typedef {{verb: string, params: Record<string, unknown>, heading: string, done: string, words?: string}} Own
 */

const MOST_NAMES = 1000;
const KEEPS = "Kept: the same key shows it again.";
const SENDING = "What you sent is still on its way.";

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
    return this.entries.length
      ? this.entries.map((entry) => entry.letter)
      : [this.isNew ? "new" : String(this.own?.params.id ?? "new")];
  }

  /**
   * Begin a text, or go on with its draft; an action that takes no words is carried out.
   * @param {Action} action @param {Entry[]} entries @param {Own | null} [own] @param {string} [to]
   * @param {boolean} [givesTask]
   */
  begin(action, entries, own = null, to = "", givesTask = false) {
    if (!mayAct()) return say("This page may only look now. Type `postroom dashboard` in a terminal to answer.", true);
    if (this.isSending) return say(SENDING, true);
    Object.assign(this, { action, entries, own, problem: "", givesTask });
    sweep();
    const draft = draftName(this.#about.join("+"), action.name);
    const kept = draftOf(draft);
    Object.assign(this, {
      draft,
      key: kept.key || newKey(),
      tried: kept.tried,
      several: entries.length > 1,
      words: kept.words,
      to: to || kept.to,
      subject: kept.subject,
    });
    if (!action.asks && !own) return void this.send();
    redraw();
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        document.getElementById(this.isNew && !this.to ? "compose-to" : "compose-words")?.focus(),
      ),
    );
  }

  /** Write a new letter, or give a task. @param {string} [to] @param {boolean} [isTask] */
  write(to = "", isTask = false) {
    this.begin(
      { key: "w", name: "compose", asks: isTask ? "What is to be done?" : "Your letter:", optional: false },
      [],
      null,
      to,
      isTask,
    );
    this.names.load();
  }

  /** Go back; what was written is kept. */
  close() {
    this.action = null;
    if (this.words.trim()) say(this.isSending ? SENDING : KEEPS);
    redraw();
    this.closed();
  }

  #keep() {
    const { words, to, subject, key, tried } = this;
    store(
      this.draft,
      words || to || subject || tried ? JSON.stringify({ words, to, subject, key, tried, at: Date.now() }) : null,
    );
  }

  async send() {
    const { action, entries, own, draft } = this;
    if (!action || this.isSending) return;
    const sent = { ...this, isNew: this.isNew };
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
    let outcome = "";
    let why = "";
    for (const letter of this.#about) {
      const key = sent.several ? `${sent.key}.${letter}` : sent.key;
      try {
        outcome = await this.#perform(sent, letter, key);
        done.push(letter);
      } catch (error) {
        if (error instanceof Refusal && error.kind === "Conflict" && entries.length) {
          gone.push(letter);
          why = error.message;
          continue;
        }
        this.isSending = false;
        this.entries = entries.filter((entry) => !done.includes(entry.letter) && !gone.includes(entry.letter));
        if (done.length) this.settled(done, action.name);
        if (!action.asks && !own) {
          this.action = null;
          return sayError(error);
        }
        return this.#refuse(this.#why(error));
      }
    }
    this.isSending = false;
    waiting.load();
    if (!done.length && sent.words.trim()) return this.#refuse(`${why} Your words are kept here.`);
    store(draft, null);
    if (done.length > 1) outcome = `Done with ${counted(done.length, "letter")}.`;
    say(done.length && gone.length ? `${outcome} ${gone.length} no longer waited for you.` : outcome || why, !outcome);
    this.settled(done, action.name);
    if (!this.action) return;
    this.action = null;
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
    return this.isNew || this.own?.verb === "reply"
      ? "Your first words were sent before the connection broke. Enter sends these as another letter."
      : error.message;
  }

  /**
   * @param {Pick<Composer, "action" | "entries" | "own" | "words" | "to" | "subject" | "givesTask" | "isNew">} sent
   *   what was written when it was sent @param {string} letter @param {string} key
   * @returns {Promise<string>} what was done
   */
  async #perform(sent, letter, key) {
    const { own } = sent;
    const words = sent.words.trim();
    if (own) {
      const { repeated } = await client.act(own.verb, { ...own.params, [own.words ?? "body"]: words, key });
      return own.done + once(repeated);
    }
    if (sent.isNew) {
      const receipt = await client.act(sent.givesTask ? "give_task" : "send", {
        to: sent.to.trim(),
        subject: sent.subject.trim(),
        body: words,
        key,
      });
      const unknown = (receipt.unknown ?? [])
        .filter((/** @type {string} */ name) => name !== person())
        .map((/** @type {string} */ name) => oneLine(name, 60));
      const waits = unknown.length
        ? ` No agent named ${unknown.join(" or ")} has been seen here yet. The letter will wait.`
        : "";
      return `${sent.givesTask ? "Given" : "Sent"} to ${oneLine(sent.to, 60)}.${waits}${once(receipt.repeated)}`;
    }
    const entry = sent.entries.find((one) => one.letter === letter);
    const answer = await client.act("act", {
      letter,
      action: sent.action?.name,
      words,
      key,
      state: entry?.state ?? null,
    });
    return answer.done + once(answer.repeated);
  }

  /** @param {string} why */
  #refuse(why) {
    if (!this.action) return say(`${KEEPS} ${why}`, true);
    this.problem = why;
    redraw();
    document.getElementById("compose-words")?.focus();
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    const isButton = /** @type {Element} */ (event.target).matches("button");
    if (event.isComposing || (event.key === "Enter" && isButton)) return;
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
    const heading =
      this.own?.heading ??
      (this.givesTask
        ? "New task"
        : this.isNew
          ? "New letter"
          : many
            ? `${begun(action.name)} ${counted(entries.length, "letter")}`
            : `${begun(action.name)}: ${oneLine(entries[0]?.subject || entries[0]?.text, 80)}`);
    return html`<form class="composer" aria-label=${heading} @submit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      this.send();
    }}
        @keydown=${(/** @type {KeyboardEvent} */ event) => this.#keyed(event)}>
      <h3><bdi>${heading}</bdi>${!this.isNew && !many && entries[0]
        ? html` <span class="faint">to <bdi>${oneLine(entries[0].from, 60)}</bdi></span>` : nothing}</h3>
      ${
        this.isNew
          ? html`<div class="fields"><label>To  <input id="compose-to" list="compose-names" autocomplete="off"
          spellcheck="false" .value=${this.to} ?readonly=${this.isSending}
            @input=${(/** @type {Event} */ event) => this.#typed("to", event)}></label>
        <datalist id="compose-names">${(this.names.value ?? []).map((name) => html`<option
          value=${name}></option>`)}</datalist>
        <label>Subject <input autocomplete="off" .value=${this.subject} ?readonly=${this.isSending}
          @input=${(/** @type {Event} */ event) => this.#typed("subject", event)}></label></div>`
          : nothing
      }
      <label for="compose-words">${action.asks}</label>
      <textarea id="compose-words" rows="4" .value=${this.words} ?readonly=${this.isSending}
        aria-describedby="compose-help compose-problem"
        @input=${(/** @type {Event} */ event) => this.#typed("words", event)}></textarea>
      <p id="compose-problem" class="problem" role="alert">${this.problem}</p>
      <div class="bar"><button class="primary"
        ?disabled=${this.isSending}>${this.isSending ? "Sending…" : this.givesTask ? "Give" : this.isNew ? "Send"
        : begun(action.name)}</button>
        <button type="button" @click=${() => this.close()}>Back</button>
        <span id="compose-help" class="faint hint"><kbd>Enter</kbd> sends <kbd>Shift</kbd> <kbd>Enter</kbd> new line
          <kbd>Esc</kbd> goes back and keeps it</span></div>
    </form>`;
  }
}

/** @param {string} name */
export const begun = (name) => name.charAt(0).toUpperCase() + name.slice(1);

export const composer = new Composer();
