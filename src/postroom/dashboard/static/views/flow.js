/** Flow: what happens now. The newest letters, and who writes to whom. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { client, framed, redraw, Source } from "../app.js";
import { flow, Graph } from "../flow.js";
import { Feed } from "../list.js";
import { agentLink, freshButton, letterList, letterPanes, reader } from "../reader.js";
import { counted, past } from "../text.js";

/** @typedef {import("../types.js").Summary} Summary */

class FlowView {
  title = "Flow";
  #showsTable = false;
  #stands = false;
  #shownNumber = 0; // the newest number of the list
  #scopesAt = 0;

  feed = new Feed((params) => client.call("mail/letters", params), () => { this.list.draw(); redraw(); });
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
    touched: () => { this.#stands = true; },
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

  at() {
    return this.source.at;
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
    const head = html`<header class="pane-head"><h1>${this.title}</h1><span class="faint">${counted(this.feed.total, "letter")}</span>
      ${flow.isPaused ? html`<span class="chip">held</span>` : nothing}${freshButton(this.feed.fresh, () => this.#renew())}<span class="grow"></span>
      <button type="button" aria-pressed=${flow.isPaused} @click=${() => this.#hold()}>Hold <kbd>,</kbd></button></header>`;
    const list = framed(this.source, {
      isEmpty: () => !this.feed.total,
      empty: () => ({ title: "Quiet. No letter was sent yet.", text: "The first one comes from any agent, or from a terminal:", command: "postroom send human --body hello --as me" }),
      content: () => this.list.element,
    });
    if (this.panes.isOpen) return this.panes.template(head, list);
    return html`<div class="panes"><section class="pane" aria-label="Letters">${head}${list}</section>${this.#picture()}</div>`;
  }

  #picture() {
    const pairs = flow.pairs();
    const quiet = !pairs.length && flow.lastAt ? `Quiet. The last letter came ${past(flow.lastAt)}.` : !pairs.length ? "Quiet." : `${counted(pairs.length, "pair")} in the last seconds`;
    return html`<section class="pane picture" aria-label="Who writes to whom"><header class="pane-head"><h2>Who writes to whom</h2><span class="faint">${quiet}</span>
      <span class="grow"></span><button type="button" aria-pressed=${this.#showsTable} @click=${() => this.#turn()}>Table <kbd>t</kbd></button></header>
      ${this.#showsTable ? nothing : this.graph.element}
      <div class="pairs ${this.#showsTable ? "all" : ""}" tabindex="0" role="group" aria-label="Busiest pairs"><table><caption>Busiest pairs now</caption><thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col" class="number">letters</th></tr></thead>
        <tbody>${pairs.slice(0, this.#showsTable ? 200 : 5).map(({ from, to, heat }) => html`<tr><td>${agentLink(flow.names[from] ?? "?")}</td><td>${agentLink(flow.names[to] ?? "?")}</td><td class="number">${heat.toFixed(1)}</td></tr>`)}
        ${pairs.length ? nothing : html`<tr><td colspan="3" class="faint">Nobody writes now.</td></tr>`}</tbody></table></div></section>`;
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
    else if (name === "esc" && this.panes.isOpen && !this.panes.isReading) { reader.close(); location.hash = this.panes.address(null); }
    else return this.panes.key(name);
    return true;
  }

  focus() {
    this.list.focus();
  }
}

export const view = new FlowView();
