/** Waiting for you: what stands still because of the person, and everything that can be done about it. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import {
  addressOf,
  blocked,
  client,
  entryOf,
  framed,
  go,
  mayAct,
  offered,
  person,
  redraw,
  say,
  Source,
  waiting,
  waitingPage,
} from "../app.js";
import { begun, composer, hasDraft } from "../composer.js";
import { List, Standing } from "../list.js";
import { dueChip, freshButton, Panes, reader } from "../reader.js";
import { ago, amount, counted, oneLine, past, STATES } from "../text.js";

/** @typedef {import("../types.js").Entry} Entry @typedef {import("../types.js").Summary} Summary */

const OLD = 30_000; // milliseconds after which is asked anyway
const AGAIN = 2000; // and where the service does not tell that something changed
const PAGE = 200; // letters of one sender that are asked for at once
const SENDERS = 200; // that are named
const MOST_SENT = 20; // letters that were sent
const GOES_ON = ["accept", "write"]; // actions after which a task still waits for the person
const SHOWN_AFTER = 1000; // milliseconds after which an opened letter counts as shown to the person

class Waiting {
  title = "Waiting for you";
  #showsSent = false;
  #news = false; // news is folded until asked for
  #sureOf = ""; // the letter for which x was pressed once
  /** @type {Standing<Entry>} */
  #standing = new Standing((entry) => entry.letter);
  /** @type {Source<Entry[]>} */
  #sent = new Source(async () => {
    const { letters } = await client.call("mail/letters", { sender: person(), limit: MOST_SENT });
    return Promise.all(
      letters.map(async (/** @type {Summary} */ one) =>
        sentEntry(one, (await client.call("mail/trace", { id: one.id })).stops),
      ),
    );
  });
  #from = ""; // the sender whose letters alone are listed
  /** @type {number | null} */
  #next = null; // where the next page of them begins
  /** What waits from one sender, page by page. @type {Source<Entry[]>} */
  #ofSender = new Source(() => this.#page([]));
  #seen = 0;
  /** @type {Set<string>} */
  #recorded = new Set(); // letters that were recorded as shown

  list = new List({
    label: "What waits for you",
    height: 58,
    count: () => this.#standing.shown.length,
    at: (index) => this.#standing.shown[index],
    id: (entry) => entry.letter,
    row: (entry) => this.#row(entry),
    look: (entry) => `${entry.priority} ${this.#standing.gone.has(entry.letter) ? "gone" : ""}`,
    picks: (entry) => {
      this.#sureOf = "";
      this.panes.preview(entry);
    },
    opens: (entry) => {
      this.panes.open(entry);
      this.#tellShown(entry);
    },
    touched: () => {
      this.#standing.stands = true;
    },
    many: true,
  });
  panes = new Panes(this.list, (/** @type {Entry} */ entry) => entry);

  /** @param {import("../app.js").Place} place */
  enter(place) {
    const showsSent = place.filters.get("show") === "sent";
    const from = place.filters.get("from") ?? "";
    this.#news = place.filters.get("news") === "1";
    if (showsSent !== this.#showsSent || from !== this.#from) {
      this.#ofSender.reset();
      this.#standing = new Standing((entry) => entry.letter);
      this.#seen = 0;
      this.list.picked = "";
      this.list.marked.clear();
    }
    this.#showsSent = showsSent;
    this.#from = from;
    reader.entryOf = (letter) => this.source.value?.find((entry) => entry.letter === letter);
    this.panes.enter(place);
    composer.settled = (ids, action) => this.#settled(ids, action);
    const open = place.filters.get("open");
    if (open) this.list.picked = open;
    else if (this.list.current) this.panes.preview(this.list.current);
    if (this.source.at) this.refresh();
    else this.source.load();
  }

  leave() {
    reader.entryOf = entryOf;
    this.#standing.stands = false;
    this.#standing.renew();
  }

  /** What waits is asked for when the service says that it changed. */
  refresh() {
    if (!this.#from || (this.#ofSender.value?.length ?? 0) <= PAGE) this.source.refresh(this.#from ? AGAIN : OLD);
    reader.refresh();
  }

  get source() {
    return this.#showsSent ? this.#sent : this.#from ? this.#ofSender : waiting;
  }

  /** @param {Entry[]} loaded @returns {Promise<Entry[]>} these and a page more */
  async #page(loaded) {
    const after = loaded.length ? this.#next : undefined;
    const params = { agent_id: person(), sender: this.#from, after, limit: PAGE, opened: true };
    const { waiting: more, next } = await client.call("mail/waiting", params);
    this.#next = next;
    return [...loaded, ...more];
  }

  /** Show what did not fit into the answer. */
  async #more() {
    this.#standing.stands = false;
    if (!this.#from) return waitingPage.next();
    const value = await this.#page(this.source.value ?? []);
    Object.assign(this.source, { value, at: Date.now() });
    redraw();
  }

  /** Whose letters are not in the list: nobody hides behind another one's many letters. */
  #senders() {
    const { senders } = waitingPage;
    if (this.#showsSent || (!senders.length && !this.#from)) return nothing;
    const from = this.#from;
    const named = senders.slice(0, SENDERS);
    if (from && !named.some(({ sender }) => sender === from)) named.unshift({ sender: from, letters: 0 });
    return html`<div class="groups" role="group" aria-label="Whose letters are not in the list">
      <a href="#/waiting" aria-current=${from ? nothing : "true"}>the list</a><span class="faint">and from</span>
      ${named.map(
        ({ sender, letters }) =>
          html`<a href=${addressOf("waiting", "", { from: sender })} aria-current=${sender === from ? "true" : nothing}>
            <bdi>${oneLine(sender, 40)}</bdi> ${letters ? html`<b>${amount(letters)}</b>` : nothing}</a>`,
      )}
      ${senders.length > SENDERS ? html`<span class="faint">and others</span>` : nothing}</div>`;
  }

  at() {
    return this.source.at;
  }

  /** @param {string[]} ids @param {string} action */
  #settled(ids, action) {
    if (GOES_ON.includes(action)) return;
    this.#standing.drop(ids);
    for (const id of ids) this.list.marked.delete(id);
    const near = this.list.pickNear();
    if (near && ids.includes(reader.letter)) this.panes.show(near);
    else if (!near) reader.close();
    this.list.draw();
  }

  /** Record that the person has seen a letter. @param {Entry} entry */
  #tellShown(entry) {
    if (!mayAct() || this.#recorded.has(entry.letter) || this.#showsSent) return;
    setTimeout(() => {
      if (reader.letter !== entry.letter || document.hidden) return;
      this.#recorded.add(entry.letter);
      client
        .act("shown", { ids: [entry.letter], host: "dashboard", where: "browser" })
        .catch(() => this.#recorded.delete(entry.letter));
    }, SHOWN_AFTER);
  }

  /** Take the newest answer, unless the list stands. */
  #take() {
    if (this.source.at === this.#seen || !this.source.value) return;
    this.#seen = this.source.at;
    const entries = this.source.value;
    this.#standing.take(
      this.#news || this.#showsSent || entries.every((entry) => entry.what === "news")
        ? entries
        : entries.filter((entry) => entry.what !== "news"),
    );
    if (!this.list.current && !this.list.picked) {
      this.list.pickNear();
      if (this.list.current) this.panes.preview(this.list.current);
    }
    this.list.draw();
  }

  template() {
    this.#take();
    const news = (waiting.value ?? []).filter((entry) => entry.what === "news").length;
    const isCut = waitingPage.more > 0 && (waiting.value?.length ?? 0) >= waitingPage.limit;
    const hasMore = this.#from ? this.#next !== null : isCut && !this.#showsSent;
    const head = html`<header class="pane-head"><h1>${this.#showsSent ? "What you sent" : this.title}</h1>
      <span class="faint">${this.#summary()}</span>
      ${freshButton(this.#standing.fresh, () => this.#renew())}
      ${hasMore ? html`<button type="button" @click=${() => this.#more()}>Show more</button>` : nothing}
      <span class="grow"></span>
      ${!this.#showsSent && news && news < (waiting.value ?? []).length
        ? html`<button type="button" aria-pressed=${this.#news}
        @click=${() => this.#fold()}>${counted(news, "news", "news")} <kbd>f</kbd></button>` : nothing}
      <button type="button" aria-pressed=${this.#showsSent}
        @click=${() => this.#switch()}>Sent <kbd>s</kbd></button></header>${this.#senders()}`;
    const list = framed(this.source, {
      isEmpty: () => !this.#standing.shown.length,
      empty: () =>
        this.#showsSent
          ? { title: "You have sent nothing yet.", text: "w writes a new letter." }
          : {
              title: `${this.#from ? "Nothing of this sender" : "Nobody"} waits for you.`,
              text: "Questions, tasks and letters of agents appear here by themselves.",
            },
      content: () => html`${this.list.element}${this.list.marked.size ? this.#marked() : nothing}`,
    });
    return this.panes.template(head, list);
  }

  #summary() {
    const entries = blocked();
    if (this.#showsSent || this.#from || !entries.length) return nothing;
    const oldest = entries.reduce((first, one) => (one.since < first.since ? one : first));
    const all = waitingPage.more
      ? `${entries.length} of ${entries.length + waitingPage.more} wait`
      : `${entries.length} wait`;
    return `${entries.length === 1 && !waitingPage.more ? "1 waits" : all}; the oldest came ${past(oldest.since)}`;
  }

  #marked() {
    const chosen = this.list.chosen();
    const common = this.#common(chosen);
    return html`<footer class="marked-bar bar actions"><b>${counted(chosen.length, "letter")} marked</b>
      ${common.map((action) => html`<button type="button" ?disabled=${!mayAct()}
        @click=${() => composer.begin(action, chosen)}>${begun(action.name)} <kbd>${action.key}</kbd></button>`)}
      ${common.length ? nothing : html`<span class="faint">No action fits
        ${chosen.length === 2 ? "both" : `all ${chosen.length}`}.</span>`}</footer>`;
  }

  /** @param {Entry[]} entries @returns {import("../types.js").Action[]} the actions that all of them offer */
  #common(entries) {
    if (!entries.length) return [];
    return offered(entries[0]).filter((action) =>
      entries.every((entry) => offered(entry).some((other) => other.key === action.key && other.name === action.name)),
    );
  }

  /** @param {Entry} entry */
  #row(entry) {
    const text = oneLine(about(entry), 160);
    const more = entry.subject && entry.text && entry.text !== entry.subject ? oneLine(entry.text, 160) : "";
    return html`<span class="top"><bdi class="who">${oneLine(entry.from, 40)}</bdi><span
      class="chip of-${entry.what}">${[entry.what === "sent" ? null
      : entry.what, entry.state && (STATES[entry.state] ?? entry.state)].filter(Boolean).join(" · ")}</span>
        ${entry.priority === "urgent" || entry.priority === "high" ? html`<span
          class="chip ${entry.priority}">${entry.priority}</span>` : nothing}
        ${dueChip(entry.due_at)}
        ${hasDraft(entry.letter) ? html`<span class="chip draft">draft</span>` : nothing}
        <span class="grow"></span>${this.#standing.gone.has(entry.letter)
          ? html`<span class="chip">no longer waits</span>` : nothing}<time
          class="faint">${ago(entry.since)}</time></span>
      <span class="line"><bdi>${text}</bdi>${more ? html` <bdi class="faint">${more}</bdi>` : nothing}</span>`;
  }

  #renew() {
    this.#standing.renew();
    this.#standing.stands = false;
    this.list.move("first");
    redraw();
  }

  #fold() {
    this.#seen = 0;
    this.#standing.stands = false;
    go(addressOf("waiting", "", { news: this.#news ? null : "1" }));
  }

  #switch() {
    go(addressOf("waiting", "", { show: this.#showsSent ? null : "sent" }));
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    if (name === "s" && !this.panes.isReading) {
      this.#switch();
      return true;
    }
    if (name === "f") {
      this.#fold();
      return true;
    }
    if (this.#act(name)) return true;
    return this.panes.key(name);
  }

  /** @param {string} name @returns {boolean} whether the key is an action on what is marked, open or picked */
  #act(name) {
    const open = this.panes.isReading
      ? (this.list.rows.at(this.list.indexOf(reader.letter)) ?? entryOf(reader.letter))
      : undefined;
    const entries = open && !this.list.marked.size ? [open] : this.list.chosen();
    const table = this.#common(entries);
    const action =
      name === "e"
        ? (table.find((one) => one.key === "c") ?? table.find((one) => one.key === "r"))
        : table.find((one) => one.key === name);
    if (!action) {
      if (entries.length > 1 && entries.some((entry) => offered(entry).some((one) => one.key === name))) {
        say(`Not every marked letter can be answered with ${name}.`, true);
        return true;
      }
      if (name === "u" && this.#showsSent && entries.length) {
        say("It cannot be taken back any more: somebody has worked on it, or it was taken back.", true);
        return true;
      }
      return false;
    }
    const [entry] = entries;
    const doubt =
      entries.length > 1
        ? ""
        : hasDraft(entry.letter)
          ? "Your answer to it was not sent."
          : entry.read || reader.letter === entry.letter
            ? ""
            : "You have not opened it.";
    const id = entries.map((one) => one.letter).join(" ");
    if (action.name === "done" && this.#sureOf !== id && (doubt || entries.length > 1)) {
      this.#sureOf = id;
      say(`${doubt || `${entries.length} letters.`} x again: done with ${entries.length > 1 ? "them" : "it"}.`);
      return true;
    }
    this.#sureOf = "";
    composer.begin(action, entries);
    return true;
  }

  commands() {
    return this.#common(this.list.chosen()).map((action) => ({
      name: `${begun(action.name)}: ${oneLine(this.list.current?.subject || this.list.current?.text, 60)}`,
      key: action.key,
      run: () => void this.#act(action.key),
    }));
  }

  focus() {
    this.list.focus();
  }
}

/** @param {Entry} entry @returns {string} its subject, without the mark of an escalation, which stands beside it */
function about(entry) {
  const subject = entry.what === "escalation" ? entry.subject.replace(/^Escalation:\s*/, "") : entry.subject;
  return subject || entry.text || "(no words)";
}

/**
 * @param {import("../types.js").Stop[]} stops
 * @returns {string} what became of a letter; sent or seen, it can be taken back
 */
function outcome(stops) {
  if (stops.every((stop) => stop.reason === "unsent")) return "taken back";
  if (stops.every((stop) => ["queued", "unread"].includes(stop.state) && !stop.attempts))
    return stops.some((stop) => stop.read_at) ? "seen" : "sent";
  return stops.every((stop) => stop.state === "done") ? "done" : "in work";
}

/** @param {Summary} one @param {import("../types.js").Stop[]} stops @returns {Entry} */
function sentEntry(one, stops) {
  return {
    what: "sent",
    id: one.id,
    letter: one.id,
    since: one.at,
    from: one.to.join(", "),
    subject: one.subject,
    text: one.line,
    priority: one.priority,
    thread: one.thread,
    state: outcome(stops),
    due_at: null,
    read: null,
    mailbox: person(),
  };
}

export const view = new Waiting();
