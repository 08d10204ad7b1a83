/** Dead letters: what got lost and why, and one, the marked ones or all that match may try again. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { client, isOperator, mayAct, person, say, sayError } from "../app.js";
import { confirm } from "../dialogs.js";
import { redraw } from "../draw.js";
import { List, Standing } from "../list.js";
import { Panes, freshButton } from "../panes.js";
import { reader } from "../reader.js";
import { addressOf } from "../router.js";
import { Source, framed } from "../source.js";
import { ago, amount, counted, oneLine } from "../text.js";

/** @typedef {import("../types.js").DeadGroup} DeadGroup @typedef {import("../types.js").DeadLetter} DeadLetter */

const SLICE = 500; // letters that are revived at once
const PAGE = 100;
const MOST = 2000; // letters of one group that are listed

class Dead {
  title = "Dead letters";
  /** @type {{mailbox?: string, reason?: string}} */
  filter = {};
  /** @type {{done: number, left: number, stops: boolean} | null} */
  #progress = null;
  #seen = 0;
  #more = true;
  /** @type {Standing<DeadLetter>} */
  #standing = new Standing((one) => `${one.id} ${one.delivery.mailbox}`);

  /** @type {Source<{groups: DeadGroup[], total: number, until: number}>} */
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
    look: (/** @type {DeadLetter} */ one) => (this.#standing.gone.has(`${one.id} ${one.delivery.mailbox}`) ? "gone" : ""),
    picks: (/** @type {DeadLetter} */ one) => this.panes.preview(one),
    opens: (/** @type {DeadLetter} */ one) => this.panes.open(one),
    touched: () => { this.#standing.stands = true; },
    wanted: (_first, last) => { if (last >= this.#standing.shown.length - 10) this.#grow(); },
    many: true,
  });
  panes = new Panes(this.list, (/** @type {DeadLetter} */ one) => ({ letter: one.id, thread: one.thread }));

  /** @param {import("../router.js").Place} place */
  enter(place) {
    const filter = { mailbox: place.filters.get("mailbox") ?? undefined, reason: place.filters.get("reason") ?? undefined };
    if (filter.mailbox !== this.filter.mailbox || filter.reason !== this.filter.reason) { this.source.reset(); this.#standing.stands = false; }
    this.filter = filter;
    this.panes.enter(place);
    this.refresh();
  }

  leave() {
    this.#standing.stands = false;
    this.list.marked.clear();
  }

  refresh() {
    if (Date.now() - this.groups.at > 900) { this.groups.load(); if ((this.source.value?.length ?? 0) <= PAGE) this.source.load(); }
    reader.refresh();
  }

  at() {
    return this.groups.at;
  }

  /** @param {DeadLetter[]} known @returns {Promise<DeadLetter[]>} these and a page more */
  async #page(known) {
    const answer = await client.call("mail/dead", { ...this.#asked(), limit: PAGE, ...(known.length ? { after: known[known.length - 1].delivery.number } : {}) });
    this.#more = answer.letters.length === PAGE;
    return [...known, ...answer.letters];
  }

  #asked() {
    return { ...(this.filter.mailbox ? { agent_id: this.filter.mailbox } : {}), ...(this.filter.reason ? { reason: this.filter.reason } : {}) };
  }

  async #grow() {
    const known = this.source.value;
    if (!known || !this.#more || known.length >= MOST) return;
    this.#more = false;
    this.source.value = await this.#page(known).catch(() => known);
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
    const head = html`<header class="pane-head"><h1>${this.title}</h1><span class="faint">${total ? amount(total) : ""}</span>${freshButton(this.#standing.fresh, () => { this.#standing.renew(); this.list.draw(); redraw(); })}<span class="grow"></span>
      ${this.#progress ? html`<span role="status">${amount(this.#progress.done)} revived, ${amount(this.#progress.left)} left</span><button type="button" @click=${() => { if (this.#progress) this.#progress.stops = true; }}>Stop</button>` : nothing}
      <button type="button" ?disabled=${!this.#mayRevive(chosen)} @click=${() => this.#revive()}>Revive ${chosen.length > 1 ? chosen.length : ""} <kbd>R</kbd></button>
      ${isOperator() && many ? html`<button type="button" ?disabled=${this.#progress !== null} @click=${() => this.#reviveAll()}>Revive all ${amount(many)}</button>
        <button type="button" class="danger" ?disabled=${!chosen.length} @click=${() => this.#purge()}>Delete ${chosen.length > 1 ? chosen.length : ""}</button>` : nothing}</header>
      ${this.#groups()}`;
    const list = framed(this.source, {
      isEmpty: () => !this.#standing.shown.length,
      empty: () => ({ title: "No dead letters. Good.", text: "A letter dies after its last attempt failed, when it expires, or when its worker gives it up." }),
      content: () => this.list.element,
    });
    return this.panes.template(head, list);
  }

  #groups() {
    const groups = this.groups.value?.groups ?? [];
    if (!groups.length) return nothing;
    const isAll = !this.filter.mailbox && !this.filter.reason;
    return html`<div class="groups" role="group" aria-label="Why and where"><a href="#/dead" aria-current=${isAll ? "true" : nothing}>all <b>${amount(this.groups.value?.total)}</b></a>
      ${groups.slice(0, 30).map((group) => html`<a href=${addressOf("dead", "", { mailbox: group.mailbox, reason: group.reason })} aria-current=${group.mailbox === this.filter.mailbox && group.reason === this.filter.reason ? "true" : nothing}>
        <bdi>${oneLine(group.mailbox, 40)}</bdi> <bdi class="faint">${oneLine(group.reason || "no reason", 60)}</bdi> <b>${amount(group.count)}</b></a>`)}</div>`;
  }

  get #matching() {
    const groups = this.groups.value?.groups ?? [];
    const { mailbox, reason } = this.filter;
    return groups.filter((one) => (!mailbox || one.mailbox === mailbox) && (!reason || one.reason === reason)).reduce((sum, one) => sum + one.count, 0);
  }

  /** @param {DeadLetter} one */
  #row(one) {
    const { delivery } = one;
    return html`<span class="top"><bdi class="who">${oneLine(one.sender, 40)}</bdi><span class="faint">→</span><bdi>${oneLine(delivery.mailbox, 40)}</bdi><span class="chip">${counted(delivery.attempts, "try", "tries")}</span><span class="grow"></span><time class="faint">${ago(delivery.dead_at)}</time></span>
      <span class="line"><bdi>${oneLine(one.subject || one.text || "(no words)", 120)}</bdi> <bdi class="bad">${oneLine(delivery.reason || "", 120)}</bdi></span>`;
  }

  /** @param {DeadLetter[]} letters */
  #mayRevive(letters) {
    return letters.length > 0 && mayAct() && (isOperator() || letters.every((one) => one.delivery.mailbox === person()));
  }

  /** @returns {Map<string, string[]>} the chosen letters, by mailbox */
  #chosen() {
    /** @type {Map<string, string[]>} */
    const found = new Map();
    for (const one of this.list.chosen()) found.set(one.delivery.mailbox, [...(found.get(one.delivery.mailbox) ?? []), one.id]);
    return found;
  }

  async #revive() {
    const letters = this.list.chosen();
    if (!this.#mayRevive(letters)) return say("To revive letters of others, open the dashboard with `postroom dashboard --operator`.", true);
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
    if (!(await confirm({ title: `Revive ${counted(many, "letter")}?`, text: `All that match${where} go back to their inboxes, the oldest first. What dies from now on is left. You can stop it.`, button: `Revive ${amount(many)}` }))) return;
    this.#progress = { done: 0, left: many, stops: false };
    try {
      while (!this.#progress.stops) {
        const answer = await client.act("revive_all", { ...this.#asked(), until, limit: SLICE });
        this.#progress = { ...this.#progress, done: this.#progress.done + answer.revived, left: answer.left };
        redraw();
        if (!answer.left || !answer.revived) break;
      }
      this.#done([], `Revived ${counted(this.#progress.done, "letter")}.${this.#progress.left ? ` ${amount(this.#progress.left)} are left.` : ""}`);
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
    if (!(await confirm({ title: `Delete ${counted(letters.length, "dead letter")}?`, text: "They cannot be read or revived after that.", button: "Delete", number: letters.length }))) return;
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
    else return this.panes.key(name) || reader.key(name);
    return true;
  }

  commands() {
    return isOperator() ? [{ name: "Revive all that match", key: "", run: () => void this.#reviveAll() }, { name: "Delete the chosen dead letters", key: "", run: () => void this.#purge() }] : [];
  }

  focus() {
    this.list.element.focus({ preventScroll: true });
  }
}

export const view = new Dead();
