/**
 * The thread reader, and a list of letters with the reader beside it.
 *
 * The letters of a thread stand in order, each behind its bar, with its parts and where it went. Everything in a
 * letter is hostile: it is shown as text nodes, cut to 64 KB at first, behind a bar and on its own ground. Files are
 * downloads of plain bytes under a safe name, made here from the bytes in the letter: they have no address.
 */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import {
  addressOf,
  client,
  entryOf,
  focusOn,
  framed,
  go,
  mayAct,
  offered,
  person,
  redraw,
  Source,
  stay,
  table,
} from "./app.js";
import { begun, composer } from "./composer.js";
import { List } from "./list.js";
import {
  ago,
  amount,
  clockTime,
  counted,
  filled,
  head,
  link,
  markdown,
  oneLine,
  safeFileName,
  size,
  verbatim,
} from "./text.js";

// -- how a letter looks in a list

/** @param {Summary} one */
function letterRow(one) {
  const to = one.to.length
    ? `${oneLine(one.to[0], 40)}${one.to.length + one.more_to > 1 ? ` +${one.to.length + one.more_to - 1}` : ""}`
    : "";
  return html`<bdi class="who">${oneLine(one.from, 40)}</bdi><bdi class="whom">${to}</bdi>
    <span class="words">${one.kind === "message" ? nothing : html`<span
      class="chip">${oneLine(one.kind.replaceAll("_", " "), 24)}</span> `}<bdi>${oneLine(one.subject || one.line
      || "(no words)", 160)}</bdi></span>
    <time class="faint">${ago(one.at)}</time>`;
}

/** @param {Message} one @returns {Summary} a whole letter in short */
export function summaryOf(one) {
  const to = one.recipients.filter((each) => each.kind !== "bcc").map((each) => each.address);
  return {
    number: 0,
    id: one.id,
    from: one.sender,
    to: to.slice(0, 5),
    more_to: Math.max(0, to.length - 5),
    subject: one.subject,
    line: one.text.trim().split("\n", 1)[0] ?? "",
    kind: one.kind,
    priority: one.priority,
    at: one.created_at,
    thread: one.thread,
    reply_to: one.in_reply_to,
    scope: one.scope,
    parts: one.parts.length,
    characters: one.text.length,
    proven: one.proven,
    state: null,
  };
}

// -- a list with its reader beside it

const WIDE = matchMedia("(min-width: 60rem)");

/** @typedef {import("./app.js").Place} Place */

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
   * @param {List<T>} list
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
    requestAnimationFrame(() => requestAnimationFrame(() => focusOn(".pages")));
  }

  /** Go back to the list. */
  close() {
    if (!WIDE.matches && this.isOpen) go(this.address(null));
    this.list.focus();
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
    if (list.key(name)) redraw();
    else if (["enter", "o", "right"].includes(name) && list.current !== undefined) this.open(list.current);
    else if (name === "v") list.mark();
    else if (name === "esc" && list.marked.size) {
      list.marked.clear();
      list.draw();
    } else return reader.key(name);
    redraw();
    return true;
  }

  /** @param {string} name @returns {boolean} */
  #readingKey(name) {
    const pages = /** @type {HTMLElement | null} */ (document.querySelector(".pages"));
    const far = (pages?.clientHeight ?? 400) - 40;
    const steps = /** @type {Record<string, number>} */ ({
      j: 60,
      down: 60,
      k: -60,
      up: -60,
      space: far,
      pgdn: far,
      pgup: -far,
      g: -1e9,
      home: -1e9,
      G: 1e9,
      end: 1e9,
    });
    if (name in steps) pages?.scrollBy({ top: steps[name] });
    else if (name === "n" || name === "p") {
      this.list.move(name === "n" ? 1 : -1);
      if (this.list.current !== undefined) this.open(this.list.current);
    } else if (["q", "esc", "left"].includes(name)) this.close();
    else return reader.key(name);
    return true;
  }

  /** @param {unknown} head @param {unknown} list */
  template(head, list) {
    return html`<div class="panes ${this.isOpen ? "has-open" : ""}"><section class="pane"
      aria-label="List">${head}${list}</section>
      ${reader.template(this.address(null))}</div>`;
  }
}

/** @typedef {{label: string, count: () => number, at: (index: number) => Summary | undefined}} Needed */

/**
 * A list of letters in short, with its panes.
 * @param {() => Panes<Summary>} panes
 * @param {Partial<import("./list.js").Rows<Summary>> & Needed} rows
 * @returns {List<Summary>}
 */
export function letterList(panes, rows) {
  return new List({
    height: 34,
    id: (one) => one.id,
    row: letterRow,
    look: (one) => one.priority,
    picks: (one) => panes().preview(one),
    opens: (one) => panes().open(one),
    ...rows,
  });
}

/** @param {List<Summary>} list */
export const letterPanes = (list) => new Panes(list, (one) => ({ letter: one.id, thread: one.thread }));

/** @param {string | null} at when something is due */
export function dueChip(at) {
  if (!at) return nothing;
  const isLate = Date.parse(at) < Date.now();
  return html`<span class="chip ${isLate ? "urgent" : "due"}">${isLate ? "late by" : "due"} ${ago(at)}</span>`;
}

/** @param {number} fresh @param {() => void} show */
export function freshButton(fresh, show) {
  return fresh > 0
    ? html`<button type="button" class="fresh" @click=${show}>${amount(fresh)} new
        <span aria-hidden="true">↑</span></button>`
    : nothing;
}

/** @param {string} name */
export function agentLink(name) {
  return html`<a class="agent" href=${addressOf("agent", name)}><bdi>${oneLine(name, 80)}</bdi></a>`;
}

// -- the thread reader

/** Whether what is written stands below the letter that it is about; everything else stands over the page. */
export const holdsComposer = () =>
  composer.isOpen && !composer.isNew && (document.querySelector(".reader")?.checkVisibility() ?? false);

/**
 * @typedef {import("./types.js").Message} Message
 * @typedef {import("./types.js").Part} Part
 * @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").Trace} Trace
 * @typedef {import("./types.js").Entry} Entry
 * @typedef {{letters: (Message | Summary)[], isLong: boolean}} Thread
 */

const AT_FIRST = 64 * 1024; // characters of a letter
const LONG = 200; // letters of a thread; of a longer one, bodies are read when they are opened
const LAST = 50; // letters of a long thread that are shown at first, besides the first one
const MORE = 100; // letters, and deliveries, that are shown each time that more are wanted
const A_PART = 200; // what a part of a letter costs at least, in characters
const HEAVY = 512 * 1024; // characters of a thread; likewise
const OPEN_LAST = 3; // letters that are open by themselves
const FRESH = 3000; // milliseconds for which a thread is not read again
const DEEP = 4; // levels of data that are unfolded
const MOST_LINES = 200; // of data

/** How an opened letter is shown: characters, as it was written, with all its data, deliveries.
 * @typedef {{shown: number, plain: boolean, deep: boolean, stops: number}} Look */

/** What is shown of a letter, and what is not: characters of text, parts, levels of data.
 * @typedef {{parts: unknown[], left: number, hidden: number, isFolded: boolean}} Body */

class Reader {
  letter = ""; // the id of the letter that was opened
  thread = "";
  scrolls = false; // scroll to the letter when it is there
  /** The entry of a letter, by which it can be acted on. @type {(letter: string) => Entry | undefined} */
  entryOf = entryOf;
  /** @type {Set<string>} letters that were unfolded or folded by hand */
  #turned = new Set();
  /** @type {Map<string, Look>} */
  #looks = new Map();
  /** @type {Map<string, Source<Trace>>} */
  #traces = new Map();
  #last = 0; // letters of a long thread that are shown, besides the first one; 0: LAST
  #seen = ""; // what tells whether letters have come to the thread, or were deleted
  /** @type {Map<string, Body & {of: string}>} the bodies of the opened letters, each made once */
  #bodies = new Map();

  /** @type {Source<Thread>} */
  source = new Source(() => this.#load());

  /** @param {string} letter @param {string} [thread] its thread, where it is known */
  open(letter, thread = "") {
    if (letter === this.letter && (!thread || thread === this.thread)) return;
    const isOther = !thread || thread !== this.thread || !this.source.value;
    this.letter = letter;
    this.thread = thread;
    this.scrolls = true;
    if (isOther) {
      this.#turned.clear();
      this.#looks.clear();
      this.#traces.clear();
      this.#bodies.clear();
      this.#last = 0;
      this.source.reset();
      this.source.load();
    }
    redraw();
  }

  /** @param {string} thread */
  openThread(thread) {
    if (thread !== this.thread || this.letter) this.open("", thread);
  }

  close() {
    this.letter = this.thread = "";
    this.source.reset();
  }

  refresh() {
    if (this.letter || this.thread) this.source.refresh(FRESH);
  }

  /** @returns {Promise<Thread>} */
  async #load() {
    const { letter } = this;
    if (!this.thread) {
      const trace = await client.call("mail/trace", { id: letter });
      if (letter !== this.letter) throw new Error("another letter was opened");
      this.thread = trace.letter.thread;
      this.#traceOf(letter).value = trace;
    }
    const thread = this.thread;
    /** @type {Summary[]} */
    const all = [];
    let next;
    do {
      const limit = Math.min(1000, Math.max(LONG, this.#last) - all.length);
      const page = await client.call("mail/letters", { thread, before: next, limit });
      all.push(...page.letters);
      next = page.next;
    } while (next && all.length < this.#last);
    const seen = `${all.length} ${all[0]?.number} ${this.#last}`;
    if (this.source.value && seen === this.#seen) return this.source.value; // a letter never changes
    this.#seen = seen;
    if (next) {
      const first = this.#traceOf(thread); // a thread is named by its first letter, which may be deleted by now
      if (!first.value) await first.load();
      const last = all.slice(0, this.#last || LAST).toReversed();
      return { letters: first.value ? [first.value.letter, ...last] : last, isLong: true };
    }
    if (all.reduce((sum, one) => sum + one.characters, 0) > HEAVY || this.#last) {
      return { letters: all.toReversed(), isLong: false };
    }
    const found = await client.call("mail/thread", { thread });
    return { letters: found.letters, isLong: false };
  }

  /** @param {string} id @returns {Source<Trace>} */
  #traceOf(id) {
    let source = this.#traces.get(id);
    if (!source) this.#traces.set(id, (source = new Source(() => client.call("mail/trace", { id }))));
    return source;
  }

  /** @param {string} id */
  #look(id) {
    let look = this.#looks.get(id);
    if (!look) this.#looks.set(id, (look = { shown: AT_FIRST, plain: false, deep: false, stops: 0 }));
    return look;
  }

  /** @param {string} back the address of the list, for narrow windows */
  template(back) {
    const content =
      this.letter || this.thread
        ? framed(this.source, {
            isEmpty: ({ letters }) => !letters.length,
            empty: () => ({ title: "No letters here", text: "The thread is empty, or its letters were deleted." }),
            content: (thread) => this.#threadTemplate(thread),
          })
        : html`<div class="state hint"><p>Pick a letter to read it here: <kbd>j</kbd> <kbd>k</kbd>, then
        <kbd>Enter</kbd>.</p></div>`;
    if (this.scrolls && this.source.value) {
      this.scrolls = false;
      const { letter } = this;
      requestAnimationFrame(() => {
        const shown = document.getElementById(`letter-${letter}`);
        const pane = document.querySelector(".pages");
        if (pane) pane.scrollTop = shown?.previousElementSibling?.matches("article") ? shown.offsetTop - 8 : 0;
      });
    }
    return html`<section class="reader" aria-label="Letter">
      <a class="back" href=${back}><span aria-hidden="true">←</span> Back</a>
      <div class="pages" tabindex="-1">${content}</div>${this.#foot()}</section>`;
  }

  /** @param {Thread} thread */
  #threadTemplate({ letters, isLong }) {
    const subject = letters.find((one) => one.id === this.letter)?.subject || letters[0].subject;
    const open = new Set(
      letters
        .slice(-OPEN_LAST)
        .map((one) => one.id)
        .concat(this.letter),
    );
    return html`<h2 class="subject"><bdi>${oneLine(subject || "(no subject)", 300)}</bdi></h2>
      <p class="faint thread-line">${counted(letters.length, "letter")}${isLong ? " of a long thread" : ""}
        · <a href=${addressOf("thread", this.thread)}>the thread by itself</a></p>
      ${letters.map((one, at) => [
        isLong && at === 1 ? this.#betweenTemplate() : nothing,
        this.#letterTemplate(one, open.has(one.id) !== this.#turned.has(one.id)),
      ])}`;
  }

  #betweenTemplate() {
    const more = () => {
      this.#last = (this.#last || LAST) + MORE;
      this.source.load();
    };
    return html`<button type="button" class="more" @click=${more}>Show ${MORE} more of the letters between</button>`;
  }

  /** @param {Message | Summary} one @param {boolean} isOpen */
  #letterTemplate(one, isOpen) {
    const from = "sender" in one ? one.sender : one.from;
    const at = "sender" in one ? one.created_at : one.at;
    const line = "sender" in one ? oneLine(one.text, 160) : oneLine(one.line, 160);
    const turn = () => {
      if (!this.#turned.delete(one.id)) this.#turned.add(one.id);
      redraw();
    };
    const look = `${one.id === this.letter ? "opened" : ""} ${isOpen ? "" : "folded"} ${one.priority}`;
    return html`<article class="letter ${look}" id="letter-${one.id}"
      aria-label="Letter from ${oneLine(from, 60)}">
      <header><button type="button" class="turn" aria-expanded=${isOpen} @click=${turn}><bdi
        class="who">${oneLine(from, 60)}</bdi> ${origin(one)}
        <time class="faint" datetime=${at} title=${clockTime(at)}>${ago(at)}</time>${isOpen ? nothing
          : html`<bdi class="first-line faint">${line}</bdi>`}</button></header>
      ${isOpen ? this.#opened(one) : nothing}</article>`;
  }

  /** @param {Message | Summary} one */
  #opened(one) {
    if ("sender" in one) return this.#whole(one);
    const isNew = !this.#traces.has(one.id);
    const source = this.#traceOf(one.id);
    if (isNew) source.load();
    return framed(source, {
      isEmpty: () => false,
      empty: () => ({ title: "" }),
      content: (trace) => this.#whole(trace.letter),
    });
  }

  /** @param {Message} one */
  #whole(one) {
    const to = one.recipients.map((each) => (each.kind === "to" ? each.address : `${each.kind} ${each.address}`));
    const look = this.#look(one.id);
    const facts = [
      `to ${oneLine(to.slice(0, 5).join(", "), 200)}${to.length > 5 ? ` and ${to.length - 5} more` : ""}`,
      clockTime(one.created_at),
    ];
    if (one.kind !== "message") facts.push(oneLine(one.kind.replaceAll("_", " "), 40));
    if (one.priority !== "normal") facts.push(one.priority);
    if (one.tags?.length) facts.push(one.tags.map((tag) => `#${oneLine(tag, 40)}`).join(" "));
    const turnPlain = () => {
      look.plain = !look.plain;
      redraw();
    };
    const turnStops = () => {
      look.stops = look.stops ? 0 : MORE;
      if (look.stops) this.#traceOf(one.id).load();
      redraw();
    };
    return html`<p class="facts faint"><bdi>${facts.join(" · ")}</bdi></p>
      ${this.#bodyTemplate(one, look)}
      <div class="under">
        <button type="button" aria-expanded=${look.stops > 0} @click=${turnStops}>Deliveries</button>
        ${one.parts.some((part) => part.type === "text")
          ? html`<button type="button" aria-pressed=${look.plain} @click=${turnPlain}>As written</button>` : nothing}
        <span class="faint id">${one.id}</span></div>
      ${look.stops ? framed(this.#traceOf(one.id), {
        isEmpty: ({ stops }) => !stops.length,
        empty: () => ({ title: "No deliveries" }),
        content: ({ stops }) => stopsTemplate(stops, look),
      }) : nothing}`;
  }

  /** @param {Message} one @param {Look} look */
  #bodyTemplate(one, look) {
    const of = `${look.shown} ${look.plain} ${look.deep}`;
    let body = this.#bodies.get(one.id);
    if (body?.of !== of) this.#bodies.set(one.id, (body = { of, ...bodyOf(one, look) }));
    /** @param {Event} event @param {() => void} change */
    const grow = (event, change) => {
      const box = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest(".body"));
      if (box) box.style.minHeight = `${box.offsetHeight}px`; // it is filled anew, and nothing below it jumps
      change();
      redraw();
    };
    const more = (/** @type {Event} */ event) => grow(event, () => { look.shown += AT_FIRST; });
    const unfold = (/** @type {Event} */ event) => grow(event, () => { look.deep = true; });
    const left = body.left ? `${size(body.left)} of text` : counted(body.hidden, "part");
    return html`<div class="body" @filled=${letGo}>${body.parts}
      ${one.parts.length ? nothing : html`<p class="faint">This letter has no text.</p>`}
      ${one.attachments?.length ? html`<p class="faint">Attachments by name:
        <bdi>${oneLine(one.attachments.join(", "), 500)}</bdi></p>` : nothing}
      ${body.isFolded ? html`<button type="button" class="more" @click=${unfold}>Unfold all of it</button>` : nothing}
      ${body.left || body.hidden
        ? html`<button type="button" class="more" @click=${more}>Show more: ${left} are left</button>` : nothing}
    </div>`;
  }

  /** What can be done with the opened letter. */
  #foot() {
    if (holdsComposer()) return composer.template();
    const entry = this.entryOf(this.letter);
    const buttons = entry
      ? offered(entry).map(
          (action) =>
            html`<button type="button" class=${action.key === "a" || action.key === "c" ? "primary" : ""}
              ?disabled=${!mayAct()} @click=${() => composer.begin(action, [entry])}>${begun(action.name)}
              <kbd>${action.key}</kbd></button>`,
        )
      : this.#replies().map(
          (action) =>
            html`<button type="button" ?disabled=${!mayAct()}
              @click=${action.run}>${action.name} <kbd>${action.key}</kbd></button>`,
        );
    if (!buttons.length || !this.source.value) return nothing;
    return html`<footer class="bar actions">${buttons}${mayAct() ? nothing
      : html`<span class="faint">This page may only look. <code>postroom dashboard</code> lets it
      answer.</span>`}</footer>`;
  }

  /** Replies to a letter that waits for nobody here. */
  #replies() {
    const one = /** @type {Message | undefined} */ (
      this.source.value?.letters.find((each) => each.id === this.letter && "sender" in each)
    );
    if (!one || one.sender === person()) return [];
    const isMine = one.recipients.some((each) => each.address === person());
    return [
      { name: isMine ? "Reply" : `Write to ${oneLine(one.sender, 40)}`, key: "r", run: () => replyTo(one, isMine) },
    ];
  }

  /** @param {string} name @returns {boolean} whether the key is for the letter that is open */
  key(name) {
    const entry = this.entryOf(this.letter);
    const action = entry && offered(entry).find((one) => one.key === name);
    const [reply] = entry ? [] : this.#replies();
    if (action) composer.begin(action, [entry]);
    else if (reply?.key === name) reply.run();
    else return false;
    return true;
  }
}

/** @param {Message} one @param {boolean} isMine */
function replyTo(one, isMine) {
  if (isMine)
    composer.begin({ key: "r", name: "reply", asks: "Your answer:", optional: false }, [], {
      verb: "reply",
      params: { id: one.id },
      heading: `Reply to ${oneLine(one.sender, 60)}`,
      done: `Answered ${oneLine(one.sender, 60)}.`,
    });
  else composer.write(one.sender);
}

/** @param {Message | Summary} one */
function origin(one) {
  if ("proof" in one && one.proof)
    return html`<span class="badge good" title="signed with the person's own key">the person's word</span>`;
  return one.proven
    ? html`<span class="badge" title="the sender showed a token">verified</span>`
    : html`<span class="badge faint" title="nothing proves who wrote it">unverified</span>`;
}

/** @param {Part} part */
function fileTemplate(part) {
  const name = oneLine(part.path ?? part.name ?? "file", 200);
  if (typeof part.bytes !== "string")
    return html`<p class="attached"><bdi>${name}</bdi> <span class="faint">a file without its content</span></p>`;
  const many = Math.floor((part.bytes.replace(/=+$/, "").length * 3) / 4);
  return html`<p class="attached"><bdi>${name}</bdi> <span class="faint">${size(many)}</span>
    <button type="button" @click=${() => download(part)}>Download <span
      class="faint">as</span> ${safeFileName(part.path ?? part.name)}</button></p>`;
}

/** Save the bytes of a file part, as nothing but bytes. @param {Part} part */
function download(part) {
  const binary = atob(String(part.bytes).replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const anchor = document.createElement("a");
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  anchor.setAttribute("href", address);
  anchor.download = safeFileName(part.path ?? part.name);
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** @param {import("./types.js").Stop[]} stops @param {Look} look */
function stopsTemplate(stops, look) {
  const more = () => {
    look.stops += MORE;
    redraw();
  };
  const columns = ["mailbox", "state", "delivered", "read", "settled", "tries", "why"];
  const rows = stops
    .slice(0, look.stops)
    .map((stop) => [
      html`<bdi>${oneLine(stop.mailbox, 60)}</bdi>`,
      stop.state,
      clockTime(stop.delivered_at),
      clockTime(stop.read_at),
      clockTime(stop.acked_at ?? stop.dead_at),
      stop.attempts ?? 0,
      html`<bdi>${oneLine(stop.reason ?? stop.holder ?? "", 120)}</bdi>`,
    ]);
  return html`<div class="stops">${table("Deliveries", columns, rows)}</div>
    ${stops.length > look.stops
      ? html`<button type="button" class="more" @click=${more}>Show ${MORE} of ${amount(stops.length - look.stops)}
        more</button>` : nothing}`;
}

// -- the body of a letter

/** @param {Event} event */
function letGo(event) {
  /** @type {HTMLElement} */ (event.currentTarget).style.minHeight = "";
}

/** @param {Message} one @param {Look} look @returns {Body} what is shown of its parts, in so many characters */
function bodyOf(one, look) {
  /** @type {Body} */
  const body = { parts: [], left: 0, hidden: 0, isFolded: false };
  let room = look.shown;
  for (const part of one.parts) {
    const text = part.type === "text" ? String(part.text ?? "") : "";
    if (room <= 0) {
      body.hidden += 1;
      body.left += text.length;
      continue;
    }
    const shown = head(text, room);
    if (part.type === "text") {
      const build = look.plain ? verbatim : markdown;
      body.parts.push(filled(look.plain ? "verbatim" : "text", (into) => build(into, shown)));
      body.left += text.length - shown.length;
    } else if (part.type === "file") body.parts.push(fileTemplate(part));
    else if (part.type === "reference") {
      const label = oneLine(part.label || "reference", 200);
      body.parts.push(html`<p class="attached"><bdi>${label}</bdi>: ${link(part.uri)}</p>`);
    } else if (part.schema === "escalation" && part.data?.reason) {
      body.parts.push(html`<p class="faint">Reason: <bdi>${oneLine(part.data.reason, 200)}</bdi></p>`);
    } else {
      const { type, ...rest } = part;
      const value = type === "data" ? part.data : rest;
      const { json, isCut } = indented(value, look.deep ? 1000 : DEEP, look.deep ? Infinity : MOST_LINES, room);
      body.isFolded ||= isCut && !look.deep;
      if (isCut && look.deep) body.hidden += 1;
      room -= json.length;
      const title = type === "data" ? `data${part.schema ? ` ${oneLine(part.schema, 60)}` : ""}` : oneLine(type, 40);
      body.parts.push(html`<details class="data" ?open=${one.sender !== "postmaster"}>
        <summary class="faint">${title}</summary>
        <pre tabindex="0" role="group" aria-label=${title}>${filled("code", (into) => verbatim(into, json))}</pre>
      </details>`);
    }
    room -= shown.length + A_PART;
  }
  return body;
}

/**
 * @param {unknown} value @param {number} deep @param {number} mostLines @param {number} most characters
 * @returns {{json: string, isCut: boolean}} JSON for people, folded below so many levels, and cut
 */
function indented(value, deep, mostLines, most) {
  /** @type {string[]} */
  const lines = [];
  let line = "";
  let room = most;
  let isCut = false;
  const isFull = () => lines.length >= mostLines || room <= 0;
  const end = (/** @type {string} */ indent) => {
    room -= line.length;
    lines.push(line);
    line = indent;
  };
  const add = (/** @type {unknown} */ one, /** @type {number} */ levels, /** @type {string} */ indent) => {
    if (typeof one === "bigint") line += String(one);
    else if (typeof one !== "object" || one === null) line += JSON.stringify(one) ?? "null";
    else {
      const [open, close] = Array.isArray(one) ? "[]" : "{}";
      const fields = Object.entries(one);
      line += open;
      if (fields.length && levels <= 0) {
        isCut = true;
        line += `… ${counted(fields.length, Array.isArray(one) ? "value" : "field")}`;
      } else if (fields.length) {
        for (const [at, [name, field]] of fields.entries()) {
          if (isFull()) return;
          end(`${indent}  `);
          if (!Array.isArray(one)) line += `${JSON.stringify(name)}: `;
          add(field, levels - 1, `${indent}  `);
          if (at < fields.length - 1) line += ",";
        }
        end(indent);
      }
      line += close;
    }
  };
  add(value, deep, "");
  isCut ||= isFull();
  return { json: head([...lines.slice(0, mostLines), ...(isFull() ? [] : [line])].join("\n"), most), isCut };
}

export const reader = new Reader();
