/** Work that is under way or late, and work that was lost: the views of tasks and of dead letters. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { addressOf, client, entryOf, focusOn, framed, go, isOperator, mayAct, offered, person, redraw, say, sayError, Source } from "../app.js";
import { begun, composer } from "../composer.js";
import { confirm } from "../dialogs.js";
import { List, Standing } from "../list.js";
import { agentLink, dueChip, freshButton, Panes, reader } from "../reader.js";
import { ago, amount, counted, oneLine, STATES } from "../text.js";

// -- tasks

/** @typedef {import("../types.js").Task} Task */

const COLUMNS = Object.entries({ ...STATES, over: "over" }).map(([state, words]) => [state, begun(words)]);
const OVER = ["completed", "failed", "rejected", "canceled"];
const MOST_TASKS = 100; // of one column

class Tasks {
  title = "Tasks";
  picked = ""; // the id of a task
  /** @type {import("../app.js").Place} */
  place = { view: "tasks", name: "", filters: new URLSearchParams() };
  /** @type {Record<string, {tasks: Task[], more: boolean}>} */
  #columns = {};

  /** @type {Source<{columns: Record<string, {tasks: Task[], more: boolean}>, waits: any[]}>} */
  source = new Source(async () => {
    const [board, ...answers] = await Promise.all([
      client.call("mail/board", { limit: 100 }),
      ...COLUMNS.map(([state]) => client.call("mail/tasks", { states: state === "over" ? OVER : [state], limit: MOST_TASKS })),
    ]);
    /** @type {Record<string, {tasks: Task[], more: boolean}>} */
    const columns = {};
    COLUMNS.forEach(([state], at) => {
      const tasks = /** @type {Task[]} */ (answers[at].tasks);
      if (state !== "over") tasks.sort((a, b) => (a.deadline ?? "9").localeCompare(b.deadline ?? "9") || a.opened_at.localeCompare(b.opened_at));
      columns[state] = { tasks, more: tasks.length === MOST_TASKS };
    });
    return { columns, waits: board.waits ?? [] };
  });

  /** @param {import("../app.js").Place} place */
  enter(place) {
    this.place = place;
    const open = place.filters.get("open");
    if (open) { this.picked = open; reader.open(open); } else reader.close();
    this.source.load();
  }

  refresh() {
    this.source.refresh(900);
    reader.refresh();
  }

  at() {
    return this.source.at;
  }

  template() {
    this.#columns = this.source.value?.columns ?? {};
    const late = Object.entries(this.#columns).flatMap(([state, { tasks }]) => (state === "over" ? [] : tasks.filter(isLate))).length;
    const isOpen = this.place.filters.has("open");
    return html`<div class="panes board-panes ${isOpen ? "has-open" : "single"}"><section class="pane" aria-label="Tasks"><header class="pane-head"><h1>${this.title}</h1>
      ${late ? html`<span class="chip urgent">${late} late</span>` : nothing}<span class="grow"></span>
      <button type="button" ?disabled=${!mayAct()} @click=${() => this.#give()}>Give a task <kbd>i</kbd></button></header>
      ${framed(this.source, {
        isEmpty: ({ columns, waits }) => !waits.length && Object.values(columns).every(({ tasks }) => !tasks.length),
        empty: () => ({ title: "No tasks yet.", text: "Press i to give one to an agent, or type:", command: 'postroom tasks give NAME "what to do"' }),
        content: ({ waits }) => html`<div class="board-scroll" tabindex="0" role="group" aria-label="Tasks and who waits">${this.#board()}${this.#waits(waits)}</div>`,
      })}</section>${isOpen ? reader.template("#/tasks") : nothing}</div>`;
  }

  #board() {
    return html`<div class="board">${COLUMNS.map(([state, words]) => {
      const column = this.#columns[state] ?? { tasks: [], more: false };
      return html`<section class="column" aria-label=${words}><h2>${words} <span class="faint">${column.tasks.length}${column.more ? "+" : ""}</span></h2>
        <ul>${column.tasks.map((task) => html`<li>${this.#card(task)}</li>`)}${column.tasks.length ? nothing : html`<li class="faint none">none</li>`}</ul></section>`;
    })}</div>`;
  }

  /** @param {Task} task */
  #card(task) {
    const question = task.state === "input_required" ? entryOf(task.last) : undefined;
    return html`<a class="task ${isLate(task) ? "late" : ""} ${task.id === this.picked ? "picked" : ""}" id="task-${task.id}" href=${addressOf("tasks", "", { open: task.id })}>
      <bdi class="words">${oneLine(task.subject || "(no subject)", 120)}</bdi>
      <span class="faint"><bdi>${oneLine(task.giver, 30)}</bdi> → <bdi>${oneLine(task.receiver, 30)}</bdi></span>
      <span class="top">${task.is_final ? nothing : dueChip(task.deadline)}
        ${task.is_final ? html`<span class="chip ${task.state === "completed" ? "good" : "high"}">${task.state}</span>` : nothing}<span class="grow"></span><time class="faint">${ago(task.moved_at)}</time></span>
      ${question?.text ? html`<span class="question"><bdi>${oneLine(question.text, 120)}</bdi></span>` : nothing}</a>`;
  }

  /** @param {any[]} waits */
  #waits(waits) {
    if (!waits.length) return nothing;
    return html`<section class="waits" aria-label="Who waits for whom"><h2>Who waits for whom <span class="faint">${waits.length}</span></h2><div class="wide" tabindex="0" role="group" aria-label="Table"><table>
      <thead><tr><th scope="col">who</th><th scope="col">waits for</th><th scope="col">since</th><th scope="col">what</th><th scope="col">about</th></tr></thead>
      <tbody>${waits.map((one) => html`<tr><td>${agentLink(one.asker)}</td><td>${agentLink(one.waits_for)}</td><td>${ago(one.since)}</td><td>${one.what}</td>
        <td><a href=${addressOf("thread", one.thread)}><bdi>${oneLine(one.subject || one.text || "open", 100)}</bdi></a></td></tr>`)}</tbody></table></div></section>`;
  }

  #give() {
    composer.write("", true);
  }

  /** Every task that is shown, column by column. */
  #all() {
    return COLUMNS.map(([state]) => this.#columns[state]?.tasks ?? []);
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    const columns = this.#all();
    const column = Math.max(0, columns.findIndex((tasks) => tasks.some((task) => task.id === this.picked)));
    const at = columns[column].findIndex((task) => task.id === this.picked);
    const isReading = document.querySelector(".reader")?.contains(document.activeElement);
    if (isReading && (name === "esc" || name === "q" || name === "left")) { go("#/tasks"); requestAnimationFrame(() => this.focus()); return true; }
    if (name === "i" && mayAct()) { this.#give(); return true; }
    if (name === "x" && this.#open) { this.#cancel(this.#open); return true; }
    const entry = this.#open && (entryOf(this.#open.id) ?? entryOf(this.#open.last));
    const action = entry && offered(entry).find((one) => one.key === name);
    if (action) { composer.begin(action, [entry]); return true; }
    if (isReading) return reader.key(name);
    if (name === "j" || name === "down") return this.#pick(columns[column][at + 1]);
    if (name === "k" || name === "up") return this.#pick(columns[column][at - 1]);
    if (name === "left" || name === "right") {
      const others = name === "left" ? columns.slice(0, column).reverse() : columns.slice(column + 1);
      const tasks = others.find((each) => each.length);
      return this.#pick(tasks?.[Math.min(Math.max(at, 0), tasks.length - 1)]);
    }
    if ((name === "enter" || name === "o") && this.picked) { go(addressOf("tasks", "", { open: this.picked })); return true; }
    if (name === "esc" && this.place.filters.has("open")) { go("#/tasks"); return true; }
    return false;
  }

  /** @returns {Task | undefined} the task that is open or picked */
  get #open() {
    return this.#all().flat().find((task) => task.id === this.picked);
  }

  /** @param {Task} task */
  async #cancel(task) {
    if (task.giver !== person() || task.is_final || !mayAct()) return;
    if (!(await confirm({ title: "Cancel this task?", text: `${oneLine(task.receiver, 60)} is told to stop: ${oneLine(task.subject, 100)}`, button: "Cancel the task" }))) return;
    composer.begin({ key: "x", name: begun("cancel"), asks: "Why?", optional: false }, [], { verb: "task_step", words: "reason", params: { id: task.id, step: "cancel" }, heading: "Cancel the task", done: "Canceled." });
  }

  /** @param {Task | undefined} task @returns {boolean} */
  #pick(task) {
    const first = task ?? (this.picked ? undefined : this.#all().flat()[0]);
    if (!first) return true;
    this.picked = first.id;
    redraw();
    requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`task-${this.picked}`)?.focus()));
    return true;
  }

  commands() {
    return [{ name: "Give a task", key: "i", run: () => this.#give() }];
  }

  focus() {
    focusOn(this.picked ? `#task-${this.picked}` : ".task, .board-scroll:not(:has(.task))");
  }
}

/** @param {Task} task */
function isLate(task) {
  return Boolean(task.deadline && !task.is_final && Date.parse(task.deadline) < Date.now());
}

export const tasks = new Tasks();

// -- dead letters

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
    look: (/** @type {DeadLetter} */ one) => (this.#standing.gone.has(`${one.id} ${one.delivery.mailbox}`) ? "gone" : ""),
    picks: (/** @type {DeadLetter} */ one) => this.panes.preview(one),
    opens: (/** @type {DeadLetter} */ one) => this.panes.open(one),
    touched: () => { this.#standing.stands = true; },
    wanted: (_first, last) => { if (last >= this.#standing.shown.length - 10) this.#grow(); },
    many: true,
  });
  panes = new Panes(this.list, (/** @type {DeadLetter} */ one) => ({ letter: one.id, thread: one.thread }));

  /** @param {import("../app.js").Place} place */
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
    this.groups.refresh(900);
    if ((this.source.value?.length ?? 0) <= PAGE) this.source.refresh(900);
    reader.refresh();
  }

  at() {
    return this.groups.at;
  }

  /** @param {DeadLetter[]} known @returns {Promise<DeadLetter[]>} these and a page more */
  async #page(known) {
    const answer = await client.call("mail/dead", { ...this.#asked(), limit: PAGE, ...(known.length ? { after: numberOf(known[known.length - 1]) } : {}) });
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
    else return this.panes.key(name);
    return true;
  }

  commands() {
    return isOperator() ? [{ name: "Revive all that match", key: "", run: () => void this.#reviveAll() }, { name: "Delete the chosen dead letters", key: "", run: () => void this.#purge() }] : [];
  }

  focus() {
    this.list.focus();
  }
}

/** @param {DeadLetter} one */
const numberOf = ({ delivery }) => delivery.arrived || delivery.number;

export const dead = new Dead();
