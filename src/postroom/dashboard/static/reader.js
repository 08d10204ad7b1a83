/**
 * The thread reader, and a list of letters with the reader beside it.
 *
 * The letters of a thread stand in order, each behind its bar, with its parts and where it went. Everything in a letter is
 * hostile: it is shown as text nodes, cut to 64 KB at first, behind a bar and on its own ground. Files are downloads of
 * plain bytes under a safe name, made here from the bytes in the letter: they have no address.
 */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { addressOf, client, entryOf, focusOn, framed, go, mayAct, offered, person, redraw, Source, stay } from "./app.js";
import { begun, composer } from "./composer.js";
import { List } from "./list.js";
import { ago, clockTime, counted, head, link, markdown, oneLine, safeFileName, size, verbatim, visible, webAddress } from "./text.js";

// -- how a letter looks in a list

/** @param {Summary} one */
function letterRow(one) {
  const to = one.to.length ? `${oneLine(one.to[0], 40)}${one.to.length + one.more_to > 1 ? ` +${one.to.length + one.more_to - 1}` : ""}` : "";
  return html`<bdi class="who">${oneLine(one.from, 40)}</bdi><bdi class="whom">${to}</bdi>
    <span class="words">${one.kind === "message" ? nothing : html`<span class="chip">${oneLine(one.kind.replaceAll("_", " "), 24)}</span> `}<bdi>${oneLine(one.subject || one.line || "(no words)", 160)}</bdi></span>
    <time class="faint">${ago(one.at)}</time>`;
}

/** @param {Message} one @returns {Summary} a whole letter in short */
export function summaryOf(one) {
  const to = one.recipients.filter((each) => each.kind !== "bcc").map((each) => each.address);
  return {
    number: 0, id: one.id, from: one.sender, to: to.slice(0, 5), more_to: Math.max(0, to.length - 5), subject: one.subject, line: one.text.trim().split("\n", 1)[0] ?? "",
    kind: one.kind, priority: one.priority, at: one.created_at, thread: one.thread, reply_to: one.in_reply_to, scope: one.scope, parts: one.parts.length, characters: one.text.length, proven: one.proven, state: null,
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
    else if (name === "esc" && list.marked.size) { list.marked.clear(); list.draw(); }
    else return reader.key(name);
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
    else return reader.key(name);
    return true;
  }

  /** @param {unknown} head @param {unknown} list */
  template(head, list) {
    return html`<div class="panes ${this.isOpen ? "has-open" : ""}"><section class="pane" aria-label="List">${head}${list}</section>
      ${reader.template(this.address(null))}</div>`;
  }
}

/**
 * A list of letters in short, with its panes.
 * @param {() => Panes<Summary>} panes @param {Partial<import("./list.js").Rows<Summary>> & {label: string, count: () => number, at: (index: number) => Summary | undefined}} rows
 * @returns {List<Summary>}
 */
export function letterList(panes, rows) {
  return new List({
    height: 34, id: (one) => one.id, row: letterRow, look: (one) => one.priority,
    picks: (one) => panes().preview(one), opens: (one) => panes().open(one), ...rows,
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
  return fresh > 0 ? html`<button type="button" class="fresh" @click=${show}>${fresh.toLocaleString("en-US")} new <span aria-hidden="true">↑</span></button>` : nothing;
}

/** @param {string} name */
export function agentLink(name) {
  return html`<a class="agent" href=${addressOf("agent", name)}><bdi>${oneLine(name, 80)}</bdi></a>`;
}

// -- the thread reader

/** Whether what is written stands below the letter that it is about; everything else stands over the page. */
export const holdsComposer = () => composer.isOpen && !composer.isNew && (document.querySelector(".reader")?.checkVisibility() ?? false);

/** @typedef {import("./types.js").Message} Message @typedef {import("./types.js").Part} Part @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").Trace} Trace @typedef {import("./types.js").Entry} Entry
 * @typedef {{letters: (Message | Summary)[], isLong: boolean}} Thread */

const AT_FIRST = 64 * 1024; // characters of a letter
const LONG = 200; // letters of a thread; of a longer one, bodies are read when they are opened
const HEAVY = 512 * 1024; // characters of a thread; likewise
const OPEN_LAST = 3; // letters that are open by themselves
const FRESH = 3000; // milliseconds for which a thread is not read again
const DEEP = 4; // levels of data that are unfolded
const MOST_LINES = 200; // of data

class Reader {
  letter = ""; // the id of the letter that was opened
  thread = "";
  scrolls = false; // scroll to the letter when it is there
  /** The entry of a letter, by which it can be acted on. @type {(letter: string) => Entry | undefined} */
  entryOf = entryOf;
  /** @type {Set<string>} letters that were unfolded or folded by hand */
  #turned = new Set();
  /** @type {Map<string, {shown: number, plain: boolean, deep: boolean, stops: boolean}>} */
  #looks = new Map();
  /** @type {Map<string, Source<Trace>>} */
  #traces = new Map();
  #between = false; // all letters of a long thread
  /** @type {Map<string, {html: unknown, of: string}>} */
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
      this.#between = false;
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
    const summaries = await client.call("mail/letters", { thread, limit: LONG });
    if (summaries.next) {
      /** @type {Summary[]} */
      let all = summaries.letters;
      for (let next = summaries.next; next && this.#between; ) {
        const page = await client.call("mail/letters", { thread, before: next, limit: LONG });
        all = [...all, ...page.letters];
        next = page.next;
      }
      const first = await client.call("mail/letters", { thread, after: 0, limit: 1 });
      const last = this.#between ? all : all.slice(0, 50);
      const known = new Set(last.map((one) => one.id));
      return { letters: [...first.letters.filter((/** @type {Summary} */ one) => !known.has(one.id)), ...last.toReversed()], isLong: true };
    }
    const all = summaries.letters.reduce((/** @type {number} */ sum, /** @type {Summary} */ one) => sum + one.characters, 0);
    if (all > HEAVY) return { letters: summaries.letters.toReversed(), isLong: false };
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
    if (!look) this.#looks.set(id, (look = { shown: AT_FIRST, plain: false, deep: false, stops: false }));
    return look;
  }

  /** @param {string} back the address of the list, for narrow windows */
  template(back) {
    const content = this.letter || this.thread ? framed(this.source, {
      isEmpty: ({ letters }) => !letters.length,
      empty: () => ({ title: "No letters here", text: "The thread is empty, or its letters were deleted." }),
      content: (thread) => this.#threadTemplate(thread),
    }) : html`<div class="state hint"><p>Pick a letter to read it here: <kbd>j</kbd> <kbd>k</kbd>, then <kbd>Enter</kbd>.</p></div>`;
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
    const open = new Set(letters.slice(-OPEN_LAST).map((one) => one.id).concat(this.letter));
    return html`<h2 class="subject"><bdi>${oneLine(subject || "(no subject)", 300)}</bdi></h2>
      <p class="faint thread-line">${isLong && !this.#between ? `${counted(letters.length, "letter")} of a long thread` : counted(letters.length, "letter")}
        · <a href=${addressOf("thread", this.thread)}>the thread by itself</a></p>
      ${letters.map((one, at) => html`${isLong && at === 1 && !this.#between ? html`<button type="button" class="more" @click=${() => { this.#between = true; this.source.load(); }}>Show all letters between</button>` : nothing}
        ${this.#letterTemplate(one, open.has(one.id) !== this.#turned.has(one.id))}`)}`;
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
    return html`<article class="letter ${one.id === this.letter ? "opened" : ""} ${one.priority}" id="letter-${one.id}" aria-label="Letter from ${oneLine(from, 60)}">
      <header><button type="button" class="turn" aria-expanded=${isOpen} @click=${turn}><bdi class="who">${oneLine(from, 60)}</bdi> ${origin(one)}
        <time class="faint" datetime=${at} title=${clockTime(at)}>${ago(at)}</time>${isOpen ? nothing : html`<bdi class="first-line faint">${line}</bdi>`}</button></header>
      ${isOpen ? this.#opened(one) : nothing}</article>`;
  }

  /** @param {Message | Summary} one */
  #opened(one) {
    if ("sender" in one) return this.#whole(one);
    const isNew = !this.#traces.has(one.id);
    const source = this.#traceOf(one.id);
    if (isNew) source.load();
    return framed(source, { isEmpty: () => false, empty: () => ({ title: "" }), content: (trace) => this.#whole(trace.letter) });
  }

  /** @param {Message} one */
  #whole(one) {
    const to = one.recipients.map((each) => (each.kind === "to" ? each.address : `${each.kind} ${each.address}`));
    const look = this.#look(one.id);
    const facts = [`to ${oneLine(to.slice(0, 5).join(", "), 200)}${to.length > 5 ? ` and ${to.length - 5} more` : ""}`, clockTime(one.created_at)];
    if (one.kind !== "message") facts.push(oneLine(one.kind.replaceAll("_", " "), 40));
    if (one.priority !== "normal") facts.push(one.priority);
    if (one.tags?.length) facts.push(one.tags.map((tag) => `#${oneLine(tag, 40)}`).join(" "));
    return html`<p class="facts faint"><bdi>${facts.join(" · ")}</bdi></p>
      <div class="body">${one.parts.length ? one.parts.map((part, at) => this.#part(one, part, at)) : html`<p class="faint">This letter has no text.</p>`}
        ${one.attachments?.length ? html`<p class="faint">Attachments by name: <bdi>${oneLine(one.attachments.join(", "), 500)}</bdi></p>` : nothing}</div>
      <div class="under"><button type="button" aria-expanded=${look.stops} @click=${() => { look.stops = !look.stops; if (look.stops) this.#traceOf(one.id).load(); redraw(); }}>Deliveries</button>
        ${one.parts.some((part) => part.type === "text") ? html`<button type="button" aria-pressed=${look.plain} @click=${() => { look.plain = !look.plain; redraw(); }}>As written</button>` : nothing}
        <span class="faint id">${one.id}</span></div>
      ${look.stops ? framed(this.#traceOf(one.id), { isEmpty: ({ stops }) => !stops.length, empty: () => ({ title: "No deliveries" }), content: stops }) : nothing}`;
  }

  /** @param {Message} one @param {Part} part @param {number} at */
  #part(one, part, at) {
    const look = this.#look(one.id);
    if (part.type === "text") return this.#text(one.id, String(part.text ?? ""), at, look);
    if (part.type === "file") return fileTemplate(part);
    if (part.type === "reference") {
      const address = webAddress(part.uri);
      return html`<p class="attached"><bdi>${oneLine(part.label || "reference", 200)}</bdi>: ${address ? link(address, visible(part.uri)) : html`<span class="address">${visible(head(String(part.uri ?? ""), 2000))}</span>`}</p>`;
    }
    if (part.schema === "escalation" && part.data?.reason) return html`<p class="faint">Reason: <bdi>${oneLine(part.data.reason, 200)}</bdi></p>`;
    const { type, ...rest } = part;
    const title = type === "data" ? `data${part.schema ? ` ${oneLine(part.schema, 60)}` : ""}` : oneLine(type, 40);
    const value = type === "data" ? part.data : rest;
    const text = indented(value, look.deep ? 1000 : DEEP);
    const lines = text.split("\n");
    const shown = look.deep ? head(text, look.shown) : lines.slice(0, MOST_LINES).join("\n");
    const isCut = text.includes("{… ") || text.includes("[… ") || lines.length > MOST_LINES;
    return html`<details class="data" ?open=${one.sender !== "postmaster"}><summary class="faint">${title}</summary><pre tabindex="0" role="group" aria-label=${title}><code>${verbatim(head(shown, look.shown))}</code></pre>
      ${isCut && !look.deep ? html`<button type="button" class="more" @click=${() => { look.deep = true; redraw(); }}>Unfold all of it</button>` : nothing}</details>`;
  }

  /** @param {string} id @param {string} text @param {number} at @param {{shown: number, plain: boolean}} look */
  #text(id, text, at, look) {
    const shown = head(text, look.shown);
    const name = `${id} ${at} ${look.plain}`;
    const of = `${shown.length}`;
    let body = this.#bodies.get(name);
    if (body?.of !== of) this.#bodies.set(name, (body = { of, html: look.plain ? html`<div class="verbatim">${verbatim(shown)}</div>` : markdown(shown) }));
    const left = text.length - shown.length;
    return html`${body.html}${left > 0 ? html`<button type="button" class="more" @click=${() => { look.shown += AT_FIRST; redraw(); }}>Show more: ${size(left)} of text are left</button>` : nothing}`;
  }

  /** What can be done with the opened letter. */
  #foot() {
    if (holdsComposer()) return composer.template();
    const entry = this.entryOf(this.letter);
    const buttons = entry ? offered(entry).map((action) => html`<button type="button" class=${action.key === "a" || action.key === "c" ? "primary" : ""} ?disabled=${!mayAct()} @click=${() => composer.begin(action, [entry])}>${begun(action.name)} <kbd>${action.key}</kbd></button>`)
      : this.#replies().map((action) => html`<button type="button" ?disabled=${!mayAct()} @click=${action.run}>${action.name} <kbd>${action.key}</kbd></button>`);
    if (!buttons.length || !this.source.value) return nothing;
    return html`<footer class="bar actions">${buttons}${mayAct() ? nothing : html`<span class="faint">This page may only look. <code>postroom dashboard</code> lets it answer.</span>`}</footer>`;
  }

  /** Replies to a letter that waits for nobody here. */
  #replies() {
    const one = /** @type {Message | undefined} */ (this.source.value?.letters.find((each) => each.id === this.letter && "sender" in each));
    if (!one || one.sender === person()) return [];
    const isMine = one.recipients.some((each) => each.address === person());
    return [{ name: isMine ? "Reply" : `Write to ${oneLine(one.sender, 40)}`, key: "r", run: () => replyTo(one, isMine) }];
  }

  /** @param {string} name @returns {boolean} whether the key was for the reader */
  key(name) {
    const reply = this.#replies()[0];
    if (name === "r" && reply && !entryOf(this.letter)) { reply.run(); return true; }
    return false;
  }
}

/** @param {Message} one @param {boolean} isMine */
function replyTo(one, isMine) {
  if (isMine) composer.begin({ key: "r", name: "reply", asks: "Your answer:", optional: false }, [], { verb: "reply", params: { id: one.id }, heading: `Reply to ${oneLine(one.sender, 60)}`, done: `Answered ${oneLine(one.sender, 60)}.` });
  else composer.write(one.sender);
}

/** @param {Message | Summary} one */
function origin(one) {
  if ("proof" in one && one.proof) return html`<span class="badge good" title="signed with the person's own key">the person's word</span>`;
  return one.proven ? html`<span class="badge" title="the sender showed a token">verified</span>` : html`<span class="badge faint" title="nothing proves who wrote it">unverified</span>`;
}

/** @param {Part} part */
function fileTemplate(part) {
  const name = oneLine(part.path ?? part.name ?? "file", 200);
  if (typeof part.bytes !== "string") return html`<p class="attached"><bdi>${name}</bdi> <span class="faint">a file without its content</span></p>`;
  const many = Math.floor((part.bytes.replace(/=+$/, "").length * 3) / 4);
  return html`<p class="attached"><bdi>${name}</bdi> <span class="faint">${size(many)}</span>
    <button type="button" @click=${() => download(part)}>Download <span class="faint">as</span> ${safeFileName(part.path ?? part.name)}</button></p>`;
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

/** @param {Trace} trace */
function stops(trace) {
  return html`<div class="wide" tabindex="0" role="group" aria-label="Deliveries"><table class="stops"><thead><tr><th scope="col">mailbox</th><th scope="col">state</th><th scope="col">delivered</th><th scope="col">read</th><th scope="col">settled</th><th scope="col">tries</th><th scope="col">why</th></tr></thead>
    <tbody>${trace.stops.map((stop) => html`<tr><td><bdi>${oneLine(stop.mailbox, 60)}</bdi></td><td>${stop.state}</td><td>${clockTime(stop.delivered_at)}</td><td>${clockTime(stop.read_at)}</td>
      <td>${clockTime(stop.acked_at ?? stop.dead_at)}</td><td>${stop.attempts ?? 0}</td><td><bdi>${oneLine(stop.reason ?? stop.holder ?? "", 120)}</bdi></td></tr>`)}</tbody></table></div>`;
}

/** @param {unknown} value @param {number} deep @param {string} [indent] @returns {string} JSON for people, folded below so many levels */
function indented(value, deep, indent = "") {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    if (deep <= 0) return `[… ${counted(value.length, "value")}]`;
    return `[\n${value.map((one) => inner + indented(one, deep - 1, inner)).join(",\n")}\n${indent}]`;
  }
  const fields = Object.entries(value);
  if (!fields.length) return "{}";
  if (deep <= 0) return `{… ${counted(fields.length, "field")}}`;
  return `{\n${fields.map(([name, one]) => `${inner}${JSON.stringify(name)}: ${indented(one, deep - 1, inner)}`).join(",\n")}\n${indent}}`;
}

export const reader = new Reader();
