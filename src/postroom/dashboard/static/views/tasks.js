/** Tasks: what is under way, what is late, and who waits for whom. A column for each state, the next deadline first. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { client, mayAct, offered, entryOf, person } from "../app.js";
import { begun, composer } from "../composer.js";
import { confirm } from "../dialogs.js";
import { redraw } from "../draw.js";
import { agentLink } from "../panes.js";
import { reader } from "../reader.js";
import { addressOf, go } from "../router.js";
import { Source, framed } from "../source.js";
import { ago, counted, oneLine } from "../text.js";

/** @typedef {import("../types.js").Task} Task */

const COLUMNS = /** @type {const} */ ([
  ["pending", "Not accepted yet"], ["accepted", "Accepted"], ["working", "At work"], ["input_required", "Has a question"], ["over", "Over"],
]);
const OVER = ["completed", "failed", "rejected", "canceled"];
const PAGE = 100; // tasks of one column

class Tasks {
  title = "Tasks";
  picked = ""; // the id of a task
  /** @type {import("../router.js").Place} */
  place = { view: "tasks", name: "", filters: new URLSearchParams() };
  /** @type {Record<string, {tasks: Task[], more: boolean}>} */
  #columns = {};

  /** @type {Source<{columns: Record<string, {tasks: Task[], more: boolean}>, waits: any[]}>} */
  source = new Source(async () => {
    const [board, ...answers] = await Promise.all([
      client.call("mail/board", { limit: 100 }),
      ...COLUMNS.map(([state]) => client.call("mail/tasks", { states: state === "over" ? OVER : [state], limit: PAGE })),
    ]);
    /** @type {Record<string, {tasks: Task[], more: boolean}>} */
    const columns = {};
    COLUMNS.forEach(([state], at) => {
      const tasks = /** @type {Task[]} */ (answers[at].tasks);
      if (state !== "over") tasks.sort((a, b) => (a.deadline ?? "9").localeCompare(b.deadline ?? "9") || a.opened_at.localeCompare(b.opened_at));
      columns[state] = { tasks, more: tasks.length === PAGE };
    });
    return { columns, waits: board.waits ?? [] };
  });

  /** @param {import("../router.js").Place} place */
  enter(place) {
    this.place = place;
    const open = place.filters.get("open");
    if (open) { this.picked = open; reader.open(open); } else reader.close();
    this.source.load();
  }

  refresh() {
    if (Date.now() - this.source.at > 900) this.source.load();
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
      <span class="top">${task.deadline && !task.is_final ? html`<span class="chip ${isLate(task) ? "urgent" : "due"}">${isLate(task) ? `late by ${ago(task.deadline)}` : `due ${ago(task.deadline)}`}</span>` : nothing}
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
    composer.begin({ key: "w", name: "compose", asks: "What is to be done?", optional: false }, [], null);
    composer.givesTask = true;
    redraw();
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
    composer.begin({ key: "x", name: begun("cancel"), asks: "Why?", optional: true }, [], { verb: "task_step", params: { id: task.id, step: "cancel" }, heading: "Cancel the task", done: "Canceled." });
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
    (document.getElementById(`task-${this.picked}`) ?? /** @type {HTMLElement | null} */ (document.querySelector(".board-scroll, main button")))?.focus({ preventScroll: true });
  }
}

/** @param {Task} task */
function isLate(task) {
  return Boolean(task.deadline && !task.is_final && Date.parse(task.deadline) < Date.now());
}

export const view = new Tasks();
