/** Letters in lists, with the reader beside them: what happens now, dead letters, search; and one letter by itself. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import {
  addressOf,
  client,
  focusOn,
  framed,
  go,
  isOperator,
  mayAct,
  Page,
  person,
  redraw,
  say,
  sayError,
  Source,
} from "../app.js";
import { composer, confirm } from "../composer.js";
import { flow, Graph } from "../flow.js";
import { Feed, List, Standing } from "../list.js";
import { agentLink, freshButton, letterList, letterPanes, Panes, reader, summaryOf } from "../reader.js";
import { ago, amount, counted, oneLine, past } from "../text.js";

/** @typedef {import("../types.js").Summary} Summary */

// -- flow: what happens now

class FlowView extends Page {
  title = "Flow";
  #showsTable = false;
  #stands = false;
  #shownNumber = 0; // the newest number of the list
  #scopesAt = 0;

  feed = new Feed(
    (params) => client.call("mail/letters", params),
    () => {
      this.list.draw();
      redraw();
    },
  );
  source = new Source(async () => {
    await this.feed.top(this.list.isAtTop ? this.list.page + 12 : undefined);
    this.#shownNumber = Math.max(this.feed.newest, flow.number);
    return this.feed.total;
  });
  list = letterList(() => this.panes, {
    label: "Newest letters",
    count: () => this.feed.total,
    at: (index) => this.feed.at(index),
    wanted: (first, last) => this.feed.wanted(first, last),
    touched: () => {
      this.#stands = true;
    },
  });
  panes = letterPanes(this.list);
  graph = new Graph();

  /** @param {import("../app.js").Place} place */
  enter(place) {
    this.panes.enter(place);
    this.list.picked = place.filters.get("open") ?? this.list.picked;
    if (!this.#stands) this.source.load();
    this.#placeAgents();
  }

  leave() {
    this.#stands = false;
    this.list.picked = "";
  }

  refresh() {
    if (this.#stands || flow.isPaused) this.#count();
    else this.source.load();
    reader.refresh();
  }

  /** Count what is new while the list stands. */
  async #count() {
    const answer = await client.call("mail/letters", { limit: 1 }).catch(() => null);
    if (answer) this.feed.fresh = Math.max(0, (answer.total ?? 0) - this.feed.total);
    redraw();
  }

  /** Place agents by the teams of the directory: now and every few minutes, so that they stand still. */
  async #placeAgents() {
    if (Date.now() - this.#scopesAt < 300_000) return;
    this.#scopesAt = Date.now();
    const answer = await client.call("mail/queues", { limit: 1000 }).catch(() => null);
    /** @type {Map<string, string>} */
    const scopes = new Map();
    for (const queue of answer?.queues ?? []) {
      const scope = queue.scopes?.find((/** @type {string} */ one) => one !== "default");
      scopes.set(queue.agent, scope ?? "");
    }
    this.graph.place(scopes);
  }

  template() {
    const head = html`<header class="pane-head"><h1>${this.title}</h1><span
      class="faint">${counted(this.feed.total, "letter")}</span>
      ${flow.isPaused ? html`<span class="chip">held</span>`
        : nothing}${freshButton(this.feed.fresh, () => this.#renew())}<span class="grow"></span>
      <button type="button" aria-pressed=${flow.isPaused} @click=${() => this.#hold()}>Hold
        <kbd>,</kbd></button></header>`;
    const list = framed(this.source, {
      isEmpty: () => !this.feed.total,
      empty: () => ({
        title: "Quiet. No letter was sent yet.",
        text: "The first one comes from any agent, or from a terminal:",
        command: "postroom send human --body hello --as me",
      }),
      content: () => this.list.element,
    });
    if (this.panes.isOpen) return this.panes.template(head, list);
    return html`<div class="panes"><section class="pane"
      aria-label="Letters">${head}${list}</section>${this.#picture()}</div>`;
  }

  #picture() {
    const pairs = flow.pairs();
    const quiet = pairs.length
      ? `${counted(pairs.length, "pair")} in the last seconds`
      : `Quiet.${flow.lastAt ? ` The last letter came ${past(flow.lastAt)}.` : ""}`;
    return html`<section class="pane picture" aria-label="Who writes to whom"><header
      class="pane-head"><h2>Who writes to whom</h2><span class="faint">${quiet}</span>
      <span class="grow"></span><button type="button" aria-pressed=${this.#showsTable}
        @click=${() => this.#turn()}>Table <kbd>t</kbd></button></header>
      ${this.#showsTable ? nothing : this.graph.element}
      <div class="pairs ${this.#showsTable ? "all" : ""}" tabindex="0" role="group"
        aria-label="Busiest pairs"><table><caption>Busiest pairs now</caption><thead><tr><th scope="col">from</th><th
        scope="col">to</th><th scope="col" class="number">letters</th></tr></thead>
        <tbody>${pairs.slice(0, this.#showsTable ? 200 : 5).map(({ from, to,
          heat }) => html`<tr><td>${agentLink(flow.names[from] ?? "?")}</td><td>${agentLink(flow.names[to] ??
            "?")}</td><td class="number">${heat.toFixed(1)}</td></tr>`)}
        ${pairs.length ? nothing : html`<tr><td colspan="3"
          class="faint">Nobody writes now.</td></tr>`}</tbody></table></div></section>`;
  }

  #renew() {
    this.#stands = false;
    this.list.picked = "";
    this.list.element.scrollTop = 0;
    this.source.load();
  }

  #turn() {
    this.#showsTable = !this.#showsTable;
    redraw();
  }

  #hold() {
    flow.isPaused = !flow.isPaused;
    if (!flow.isPaused) this.#renew();
    redraw();
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    if (this.graph.key(name)) return true;
    if (name === ",") this.#hold();
    else if (name === "t" && !this.panes.isOpen) this.#turn();
    else if (name === "esc" && this.panes.isOpen && !this.panes.isReading) {
      reader.close();
      location.hash = this.panes.address(null);
    } else return this.panes.key(name);
    return true;
  }
}

export const flowView = new FlowView();

// -- dead letters

/** @typedef {import("../types.js").DeadGroup} DeadGroup @typedef {import("../types.js").DeadLetter} DeadLetter */

const SLICE = 500; // letters that are revived at once
const PAGE = 100;
const MOST = 2000; // letters of one group that are listed

class Dead extends Page {
  title = "Dead letters";
  /** @type {{mailbox?: string, reason?: string}} */
  filter = {};
  /** @type {{done: number, left: number, stops: boolean} | null} */
  #progress = null;
  #seen = 0;
  #more = true;
  /** @type {Standing<DeadLetter>} */
  #standing = new Standing((one) => `${one.id} ${one.delivery.mailbox}`);

  /** @type {Source<{groups: DeadGroup[], total: number, until: string}>} */
  groups = new Source(() => client.call("mail/dead_groups"));
  /** @type {Source<DeadLetter[]>} */
  source = new Source(() => this.#page([]));
  list = new List({
    label: "Dead letters",
    height: 58,
    count: () => this.#standing.shown.length,
    at: (index) => this.#standing.shown[index],
    id: (/** @type {DeadLetter} */ one) => `${one.id} ${one.delivery.mailbox}`,
    row: (/** @type {DeadLetter} */ one) => this.#row(one),
    look: (/** @type {DeadLetter} */ one) =>
      this.#standing.gone.has(`${one.id} ${one.delivery.mailbox}`) ? "gone" : "",
    picks: (/** @type {DeadLetter} */ one) => this.panes.preview(one),
    opens: (/** @type {DeadLetter} */ one) => this.panes.open(one),
    touched: () => {
      this.#standing.stands = true;
    },
    wanted: (_first, last) => {
      if (last >= this.#standing.shown.length - 10) this.#grow();
    },
    many: true,
  });
  panes = new Panes(this.list, (/** @type {DeadLetter} */ one) => ({ letter: one.id, thread: one.thread }));

  /** @param {import("../app.js").Place} place */
  enter(place) {
    const filter = {
      mailbox: place.filters.get("mailbox") || undefined,
      reason: place.filters.get("reason") || undefined,
    };
    if (filter.mailbox !== this.filter.mailbox || filter.reason !== this.filter.reason) {
      this.source.reset();
      this.#standing.stands = false;
    }
    this.filter = filter;
    this.panes.enter(place);
    this.refresh();
  }

  leave() {
    this.#standing.stands = false;
    this.list.marked.clear();
  }

  refresh() {
    this.groups.refresh(900);
    if ((this.source.value?.length ?? 0) <= PAGE) this.source.refresh(900);
    reader.refresh();
  }

  at() {
    return this.groups.at;
  }

  /** @param {DeadLetter[]} loaded @returns {Promise<DeadLetter[]>} these and a page more */
  async #page(loaded) {
    const answer = await client.call("mail/dead", {
      ...this.#filters(),
      limit: PAGE,
      after: loaded.length ? numberOf(loaded[loaded.length - 1]) : undefined,
    });
    this.#more = answer.letters.length === PAGE;
    return [...loaded, ...answer.letters];
  }

  #filters() {
    return { agent_id: this.filter.mailbox, reason: this.filter.reason };
  }

  async #grow() {
    const loaded = this.source.value;
    if (!loaded || !this.#more || loaded.length >= MOST) return;
    this.#more = false;
    this.source.value = await this.#page(loaded).catch(() => loaded);
    this.source.at = Date.now();
    redraw();
  }

  #take() {
    if (this.source.at === this.#seen || !this.source.value) return;
    this.#seen = this.source.at;
    this.#standing.take(this.source.value);
    this.list.draw();
  }

  template() {
    this.#take();
    const total = this.groups.value?.total ?? 0;
    const many = this.#matching;
    const chosen = this.list.chosen();
    const head = html`<header class="pane-head"><h1>${this.title}</h1><span
      class="faint">${total ? amount(total) : ""}</span>${freshButton(
      this.#standing.fresh,
      () => {
        this.#standing.renew();
        this.list.draw();
        redraw();
      },
    )}<span class="grow"></span>
      ${
        this.#progress
          ? html`<span role="status">${amount(this.#progress.done)} revived, ${amount(this.#progress.left)}
          left</span><button type="button" @click=${() => {
              if (this.#progress) this.#progress.stops = true;
            }}>Stop</button>`
          : nothing
      }
      <button type="button" ?disabled=${!this.#mayRevive(chosen)}
        @click=${() => this.#revive()}>Revive ${chosen.length > 1 ? chosen.length : ""} <kbd>R</kbd></button>
      ${
        isOperator() && many
          ? html`<button type="button" ?disabled=${this.#progress !== null}
          @click=${() => this.#reviveAll()}>Revive all ${amount(many)}</button>
        <button type="button" class="danger" ?disabled=${!chosen.length}
          @click=${() => this.#purge()}>Delete ${chosen.length > 1 ? chosen.length : ""}</button>`
          : nothing
      }</header>
      ${this.#groups()}`;
    const list = framed(this.source, {
      isEmpty: () => !this.#standing.shown.length,
      empty: () => ({
        title: "No dead letters. Good.",
        text: "A letter dies after its last attempt failed, when it expires, or when its worker gives it up.",
      }),
      content: () => this.list.element,
    });
    return this.panes.template(head, list);
  }

  #groups() {
    const groups = this.groups.value?.groups ?? [];
    if (!groups.length) return nothing;
    const isAll = !this.filter.mailbox && !this.filter.reason;
    return html`<div class="groups" role="group" aria-label="Why and where"><a href="#/dead"
      aria-current=${isAll ? "true" : nothing}>all <b>${amount(this.groups.value?.total)}</b></a>
      ${groups.slice(0, 30).map(
        (
          group,
        ) => html`<a href=${addressOf("dead", "", { mailbox: group.mailbox, reason: group.reason })}
          aria-current=${group.mailbox === this.filter.mailbox && group.reason === this.filter.reason ? "true"
          : nothing}>
        <bdi>${oneLine(group.mailbox, 40)}</bdi> <bdi class="faint">${oneLine(group.reason || "no reason", 60)}</bdi>
          <b>${amount(group.count)}</b></a>`,
      )}</div>`;
  }

  get #matching() {
    const groups = this.groups.value?.groups ?? [];
    const { mailbox, reason } = this.filter;
    return groups
      .filter((one) => (!mailbox || one.mailbox === mailbox) && (!reason || one.reason === reason))
      .reduce((sum, one) => sum + one.count, 0);
  }

  /** @param {DeadLetter} one */
  #row(one) {
    const { delivery } = one;
    return html`<span class="top"><bdi class="who">${oneLine(one.sender, 40)}</bdi><span
      class="faint">→</span><bdi>${oneLine(delivery.mailbox, 40)}</bdi><span
      class="chip">${counted(delivery.attempts, "try", "tries")}</span><span class="grow"></span><time
      class="faint">${ago(delivery.dead_at)}</time></span>
      <span class="line"><bdi>${oneLine(one.subject || one.text || "(no words)", 120)}</bdi> <bdi
        class="bad">${oneLine(delivery.reason || "", 120)}</bdi></span>`;
  }

  /** @param {DeadLetter[]} letters */
  #mayRevive(letters) {
    return (
      letters.length > 0 && mayAct() && (isOperator() || letters.every((one) => one.delivery.mailbox === person()))
    );
  }

  /** @returns {Map<string, string[]>} the chosen letters, by mailbox */
  #chosen() {
    /** @type {Map<string, string[]>} */
    const found = new Map();
    for (const one of this.list.chosen())
      found.set(one.delivery.mailbox, [...(found.get(one.delivery.mailbox) ?? []), one.id]);
    return found;
  }

  async #revive() {
    const letters = this.list.chosen();
    if (!this.#mayRevive(letters))
      return say("To revive letters of others, open the dashboard with `postroom dashboard --operator`.", true);
    try {
      for (const [agent_id, ids] of this.#chosen()) await client.act("revive", { agent_id, ids });
      this.#done(letters, `Revived ${counted(letters.length, "letter")}.`);
    } catch (error) {
      sayError(error);
    }
  }

  /** @param {DeadLetter[]} letters @param {string} words */
  #done(letters, words) {
    say(words);
    this.#standing.drop(letters.map((one) => `${one.id} ${one.delivery.mailbox}`));
    this.list.marked.clear();
    this.list.pickNear();
    this.list.draw();
    this.groups.load();
    this.source.load();
  }

  async #reviveAll() {
    const until = this.groups.value?.until;
    const many = this.#matching;
    const where = this.filter.mailbox ? ` of ${this.filter.mailbox}` : "";
    if (
      !(await confirm({
        title: `Revive ${counted(many, "letter")}?`,
        text: `All that match${where} go back to their inboxes, the oldest first. What dies from now on is left.`,
        button: `Revive ${amount(many)}`,
      }))
    )
      return;
    this.#progress = { done: 0, left: many, stops: false };
    try {
      while (!this.#progress.stops) {
        const answer = await client.act("revive_all", { ...this.#filters(), until, limit: SLICE });
        this.#progress = { ...this.#progress, done: this.#progress.done + answer.revived, left: answer.left };
        redraw();
        if (!answer.left || !answer.revived) break;
      }
      const { left } = this.#progress;
      this.#done(
        [],
        `Revived ${counted(this.#progress.done, "letter")}.${left ? ` ${amount(left)} are left.` : ""}`,
      );
    } catch (error) {
      sayError(error);
    }
    this.#progress = null;
    this.groups.load();
    this.source.load();
  }

  async #purge() {
    const letters = this.list.chosen();
    if (!letters.length || !isOperator()) return;
    if (
      !(await confirm({
        title: `Delete ${counted(letters.length, "dead letter")}?`,
        text: "They cannot be read or revived after that.",
        button: "Delete",
        number: letters.length,
      }))
    )
      return;
    try {
      for (const [agent_id, ids] of this.#chosen()) await client.act("purge_dead", { agent_id, ids });
      this.#done(letters, `Deleted ${counted(letters.length, "letter")}.`);
    } catch (error) {
      sayError(error);
    }
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    if (name === "R") this.#revive();
    else return this.panes.key(name);
    return true;
  }

  commands() {
    return isOperator()
      ? [
          { name: "Revive all that match", key: "", run: () => void this.#reviveAll() },
          { name: "Delete the chosen dead letters", key: "", run: () => void this.#purge() },
        ]
      : [];
  }
}

/** @param {DeadLetter} one */
const numberOf = ({ delivery }) => delivery.arrived || delivery.number;

export const dead = new Dead();

// -- search

const FOUND = 50; // letters of one page
const MOST_FOUND = 1000; // letters of one search
const WORDS = [
  ["from:coder", "who wrote it"],
  ["to:human", "who got it"],
  ["kind:task", "what it is"],
  ["tag:release", "a tag"],
  ['"exact words"', "these words in this order"],
  ["before:2026-11-01", "older"],
  ["after:2026-10-01", "newer"],
];

class Search extends Page {
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
    wanted: (_first, last) => {
      if (last >= (this.source.value?.length ?? 0) - 10) this.#grow();
    },
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

  /** @param {Summary[]} loaded @returns {Promise<Summary[]>} these and a page more */
  async #page(loaded) {
    const answer = await client.call("mail/search", {
      query: this.query,
      limit: FOUND,
      ranked: this.#ranked,
      before: loaded[loaded.length - 1]?.id,
    });
    this.#more = !this.#ranked && answer.letters.length === FOUND;
    return [...loaded, ...answer.letters.map(summaryOf)];
  }

  async #grow() {
    const loaded = this.source.value;
    if (!loaded || !this.#more || loaded.length >= MOST_FOUND) return;
    this.#more = false;
    this.source.value = await this.#page(loaded).catch(() => loaded);
    redraw();
  }

  template() {
    this.list.draw();
    const many = this.source.value?.length ?? 0;
    const head = html`<header class="pane-head"><h1>${this.title}</h1>${many
      ? html`<span class="faint">${counted(many, "letter")}${this.#more ? " or more" : ""}</span>` : nothing}<span
      class="grow"></span>
      ${
        this.query
          ? html`<a class="button" aria-current=${this.#ranked ? nothing : "true"}
          href=${addressOf("search", "", { q: this.query })}>Newest</a>
        <a class="button" aria-current=${this.#ranked ? "true" : nothing}
          href=${addressOf("search", "", { q: this.query, best: "1" })}>Best</a>`
          : nothing
      }</header>`;
    if (!this.query)
      return html`<div class="panes single"><section class="pane search-words" tabindex="-1"
        aria-label="Search">${head}<div class="state empty"><h2>Search all letters</h2><p>Press <kbd>/</kbd> and type
        words. These narrow it down:</p>
      <dl class="keys">${WORDS.map(([word, means]) =>
        html`<div><dt><code>${word}</code></dt><dd>${means}</dd></div>`)}</dl></div></section></div>`;
    const list = framed(this.source, {
      isEmpty: (letters) => !letters.length,
      empty: () => ({
        title: "Nothing was found.",
        text: "Every word must be in the letter. Try fewer words, or from: to: kind: tag: before: after:",
      }),
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

class Single {
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
    return html`<h1 class="unseen">${this.title}</h1><div
      class="panes alone has-open">${reader.template("#/flow")}</div>`;
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    if (["esc", "q", "left"].includes(name)) history.back();
    else return reader.key(name);
    return true;
  }

  focus() {
    focusOn(".pages");
  }
}

export const letterPage = new Single("Letter");
export const threadPage = new Single("Thread");
