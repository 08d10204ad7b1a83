/** The room: its agents, the tasks that are under way, other systems that it is linked with, and its numbers. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import {
  addressOf,
  client,
  entryOf,
  focusOn,
  framed,
  go,
  isOperator,
  mayAct,
  offered,
  Page,
  person,
  redraw,
  say,
  sayError,
  single,
  Source,
  stay,
  table,
} from "../app.js";
import { begun, composer, confirm } from "../composer.js";
import { List, Standing } from "../list.js";
import { agentLink, dueChip, freshButton, letterList, letterPanes, reader } from "../reader.js";
import { ago, amount, clockTime, counted, oneLine, past, size, STATES } from "../text.js";

// -- agents

/** @typedef {import("../types.js").Queue} Queue @typedef {import("../types.js").Summary} Summary */

const MOST_AGENTS = 1000; // agents in one answer
const SAMPLES = 60; // of a sparkline
const SAMPLE = 5000; // milliseconds between two samples: five minutes in all

/** How agents can be sorted: by what is stuck first. @type {Record<string, (a: Queue, b: Queue) => number>} */
const SORTS = {
  backlog: (a, b) => b.backlog - a.backlog || a.agent.localeCompare(b.agent),
  oldest: (a, b) => (a.oldest_unread_at ?? "9").localeCompare(b.oldest_unread_at ?? "9") || b.backlog - a.backlog,
  dead: (a, b) => b.dead - a.dead || b.backlog - a.backlog,
  name: (a, b) => a.agent.localeCompare(b.agent),
};

class Agents extends Page {
  title = "Agents";
  #sort = "backlog";
  #seen = 0;
  /** @type {Standing<Queue>} */
  #standing = new Standing((queue) => queue.agent);
  /** @type {Map<string, number[]>} the backlog of the last five minutes, by agent */
  #samples = new Map();
  #sampledAt = 0;

  /** @type {Source<Queue[]>} */
  source = new Source(async () => {
    /** @type {Queue[]} */
    const found = [];
    for (let after; ;) {
      const answer = await client.call("mail/queues", { limit: MOST_AGENTS, after });
      found.push(...answer.queues);
      after = answer.next;
      if (!after) return found;
    }
  });
  list = new List({
    label: "Agents",
    height: 38,
    count: () => this.#standing.shown.length,
    at: (index) => this.#standing.shown[index],
    id: (/** @type {Queue} */ one) => one.agent,
    row: (/** @type {Queue} */ one) => this.#row(one),
    look: (/** @type {Queue} */ one) => (one.dead ? "high" : ""),
    opens: (/** @type {Queue} */ one) => go(addressOf("agent", one.agent)),
    touched: () => {
      this.#standing.stands = true;
    },
  });

  /** @param {import("../app.js").Place} place */
  enter(place) {
    const sort = place.filters.get("sort") ?? "";
    this.#sort = Object.hasOwn(SORTS, sort) ? sort : "backlog";
    this.#seen = 0;
    this.source.load();
  }

  leave() {
    this.#standing.stands = false;
  }

  #take() {
    if (this.source.at === this.#seen || !this.source.value) return;
    this.#seen = this.source.at;
    this.#standing.take([...this.source.value].sort(SORTS[this.#sort]));
    if (Date.now() - this.#sampledAt > SAMPLE) {
      this.#sampledAt = Date.now();
      for (const { agent, backlog } of this.source.value)
        this.#samples.set(agent, [...(this.#samples.get(agent) ?? []), backlog].slice(-SAMPLES));
    }
    this.list.draw();
  }

  template() {
    this.#take();
    const all = this.source.value ?? [];
    const backlog = all.reduce((sum, one) => sum + one.backlog, 0);
    const sorted = (/** @type {Event} */ event) => this.#by(/** @type {HTMLSelectElement} */ (event.target).value);
    const head = html`<span class="faint">
        ${all.length ? `${counted(all.length, "mailbox", "mailboxes")}, ${amount(backlog)} unsettled` : ""}</span>
      ${freshButton(this.#standing.fresh, () => this.#renew())}<span class="grow"></span>
      <label class="faint">Sort <select @change=${sorted}>
        ${Object.keys(SORTS).map((name) => html`<option ?selected=${name === this.#sort}>${name}</option>`)}
      </select></label> <kbd>s</kbd>`;
    return single(
      this.title,
      head,
      framed(this.source, {
        isEmpty: () => !this.#standing.shown.length,
        empty: () => ({
          title: "Nobody is registered.",
          text: "An agent has a mailbox with its first letter, and a card with:",
          command: "postroom register --as NAME",
        }),
        content: () =>
          html`<div class="agent-row columns-head" aria-hidden="true">
              <span>agent</span><span>presence</span><span class="number">unsettled</span>
              <span class="wide-only">five minutes</span><span class="number">unread</span>
              <span class="number">claimed</span><span class="number">dead</span><span>oldest unread</span></div>
            ${this.list.element}`,
      }),
    );
  }

  /** @param {Queue} one */
  #row(one) {
    return html`<span class="agent-row"><bdi
      class="who">${oneLine(one.agent, 60)}</bdi><span>${presence(one.registered ? one.status : null)}</span><span
      class="number">${amount(one.backlog)}</span>
      <span class="wide-only">${sparkline(this.#samples.get(one.agent) ?? [])}</span><span
        class="number faint">${amount(one.unread)}</span><span
        class="number faint">${one.claimed ? amount(one.claimed) : ""}</span>
      <span class="number ${one.dead ? "bad" : "faint"}">${one.dead ? amount(one.dead) : ""}</span><span
        class="faint">${ago(one.oldest_unread_at)}</span></span>`;
  }

  /** @param {string} sort */
  #by(sort) {
    this.#sort = sort;
    this.#seen = 0;
    this.#standing.stands = false;
    stay(addressOf("agents", "", { sort: sort === "backlog" ? null : sort }));
    redraw();
  }

  #renew() {
    this.#standing.stands = false;
    this.#standing.renew();
    this.list.draw();
    redraw();
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    const { list } = this;
    if (list.key(name)) return true;
    if (["enter", "o", "right"].includes(name) && list.current) go(addressOf("agent", list.current.agent));
    else if (name === "s") {
      const names = Object.keys(SORTS);
      this.#by(names[(names.indexOf(this.#sort) + 1) % names.length]);
    } else return false;
    return true;
  }
}

/** @param {string | null} word */
function presence(word) {
  return html`<span class="presence ${word ?? "unknown"}"><i aria-hidden="true"></i>${word ?? "no card"}</span>`;
}

/** @param {number[]} values @returns {unknown} */
function sparkline(values) {
  if (values.length < 2) return nothing;
  const most = Math.max(...values, 1);
  const points = values
    .map((value, at) => `${((at / (values.length - 1)) * 98 + 1).toFixed(1)},${(19 - (value / most) * 18).toFixed(1)}`)
    .join(" ");
  return html`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"><polyline
    points=${points} /></svg>`;
}

/** One agent by itself. */
class AgentPage extends Page {
  title = "Agent";
  name = "";
  #show = "agent_id"; // or recipient, sender: a parameter of `letters`

  /** @type {Source<any>} */
  card = new Source(() => client.call("mail/agent", { name: this.name }));
  /** @type {Source<any>} */
  tasks = new Source(() => client.call("mail/tasks", { agent_id: this.name, limit: 50 }));
  /** @type {Source<Summary[]>} */
  source = new Source(
    async () => (await client.call("mail/letters", { [this.#show]: this.name, limit: 200 })).letters,
  );
  list = letterList(() => this.panes, {
    label: "Letters",
    count: () => this.source.value?.length ?? 0,
    at: (index) => this.source.value?.[index],
  });
  panes = letterPanes(this.list);

  /** @param {import("../app.js").Place} place */
  enter(place) {
    const show = place.filters.get("show") ?? "agent_id";
    if (place.name !== this.name || show !== this.#show)
      for (const source of [this.card, this.tasks, this.source]) source.reset();
    this.name = place.name;
    this.title = oneLine(place.name, 60);
    this.#show = ["agent_id", "recipient", "sender"].includes(show) ? show : "agent_id";
    this.panes.enter(place);
    this.refresh();
  }

  refresh() {
    for (const source of [this.card, this.tasks, this.source]) source.load();
    reader.refresh();
  }

  template() {
    this.list.draw();
    const card = this.card.value?.agent?.card ?? {};
    const head = html`<header class="pane-head"><h1><bdi>${this.title}</bdi></h1>${this.card.value
      ? presence(this.card.value.agent?.presence?.status ?? null) : nothing}<span class="grow"></span>
      <button type="button" ?disabled=${!mayAct()} @click=${() => composer.write(this.name)}>Write
        <kbd>w</kbd></button></header>
      ${
        card.description || card.capabilities?.length || card.program
          ? html`<dl class="card">
        ${card.description ? html`<div><dt>what</dt><dd><bdi>${oneLine(card.description, 400)}</bdi></dd></div>`
          : nothing}
        ${card.capabilities?.length
          ? html`<div><dt>can</dt><dd><bdi>${oneLine(card.capabilities.join(", "), 300)}</bdi></dd></div>` : nothing}
        ${card.program ? html`<div><dt>runs</dt><dd><bdi>${oneLine(`${card.program} ${card.model ?? ""}`,
          100)}</bdi></dd></div>` : nothing}
        ${card.registered_at ? html`<div><dt>registered</dt><dd>${past(card.registered_at)}</dd></div>` : nothing}</dl>`
          : nothing
      }
      ${this.tasks.value?.tasks?.length ? html`<details
        class="tasks-of"><summary>${counted(this.tasks.value.tasks.length,
        "task")}</summary><ul>${this.tasks.value.tasks.map((/** @type {any} */ task) => html`<li><a
          href=${addressOf("letter", task.id)}><bdi>${oneLine(task.subject || "(no subject)", 100)}</bdi></a> <span
            class="chip">${STATES[task.state] ?? task.state}</span> <span
            class="faint">${task.giver} → ${task.receiver}, ${ago(task.moved_at)}</span></li>`)}</ul></details>`
            : nothing}
      <div class="tabs" role="group" aria-label="Which letters">${[
        ["agent_id", "All letters"],
        ["recipient", "Inbox"],
        ["sender", "Sent"],
      ].map(
        ([show, words]) =>
          html`<a href=${addressOf("agent", this.name, { show: show === "agent_id" ? null : show })}
            aria-current=${show === this.#show ? "true" : nothing}>${words}</a>`,
      )}</div>`;
    const list = framed(this.source, {
      isEmpty: (letters) => !letters.length,
      empty: () => ({ title: "No letters.", text: "Nothing was written by this agent or to it." }),
      content: () => this.list.element,
    });
    return this.panes.template(head, list);
  }

  /** @param {string} name @returns {boolean} */
  key(name) {
    if (name === "w") composer.write(this.name);
    else if ((name === "esc" || name === "q" || name === "left") && !this.panes.isReading) go("#/agents");
    else return this.panes.key(name);
    return true;
  }
}

export const agents = new Agents();
export const agentPage = new AgentPage();

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
      ...COLUMNS.map(([state]) =>
        client.call("mail/tasks", { states: state === "over" ? OVER : [state], limit: MOST_TASKS }),
      ),
    ]);
    /** @type {Record<string, {tasks: Task[], more: boolean}>} */
    const columns = {};
    COLUMNS.forEach(([state], at) => {
      const tasks = /** @type {Task[]} */ (answers[at].tasks);
      if (state !== "over")
        tasks.sort(
          (a, b) => (a.deadline ?? "9").localeCompare(b.deadline ?? "9") || a.opened_at.localeCompare(b.opened_at),
        );
      columns[state] = { tasks, more: tasks.length === MOST_TASKS };
    });
    return { columns, waits: board.waits ?? [] };
  });

  /** @param {import("../app.js").Place} place */
  enter(place) {
    this.place = place;
    const open = place.filters.get("open");
    if (open) {
      this.picked = open;
      reader.open(open);
    } else reader.close();
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
    const late = Object.entries(this.#columns).flatMap(([state, { tasks }]) =>
      state === "over" ? [] : tasks.filter(isLate),
    ).length;
    const isOpen = this.place.filters.has("open");
    return html`<div class="panes board-panes ${isOpen ? "has-open" : "single"}"><section class="pane"
      aria-label="Tasks"><header class="pane-head"><h1>${this.title}</h1>
      ${late ? html`<span class="chip urgent">${late} late</span>` : nothing}<span class="grow"></span>
      <button type="button" ?disabled=${!mayAct()} @click=${() => this.#give()}>Give a task
        <kbd>i</kbd></button></header>
      ${framed(this.source, {
        isEmpty: ({ columns, waits }) => !waits.length && Object.values(columns).every(({ tasks }) => !tasks.length),
        empty: () => ({
          title: "No tasks yet.",
          text: "Press i to give one to an agent, or type:",
          command: 'postroom tasks give NAME "what to do"',
        }),
        content: ({ waits }) =>
          html`<div class="board-scroll" tabindex="0" role="group"
            aria-label="Tasks and who waits">${this.#board()}${this.#waits(waits)}</div>`,
      })}</section>${isOpen ? reader.template("#/tasks") : nothing}</div>`;
  }

  #board() {
    return html`<div class="board">${COLUMNS.map(([state, words]) => {
      const column = this.#columns[state] ?? { tasks: [], more: false };
      return html`<section class="column" aria-label=${words}><h2>${words} <span
        class="faint">${column.tasks.length}${column.more ? "+" : ""}</span></h2>
        <ul>${column.tasks.map((task) => html`<li>${this.#card(task)}</li>`)}${column.tasks.length ? nothing
          : html`<li class="faint none">none</li>`}</ul></section>`;
    })}</div>`;
  }

  /** @param {Task} task */
  #card(task) {
    const question = task.state === "input_required" ? entryOf(task.last) : undefined;
    return html`<a class="task ${isLate(task) ? "late" : ""} ${task.id === this.picked ? "picked" : ""}"
      id="task-${task.id}" href=${addressOf("tasks", "", { open: task.id })}>
      <bdi class="words">${oneLine(task.subject || "(no subject)", 120)}</bdi>
      <span class="faint"><bdi>${oneLine(task.giver, 30)}</bdi> → <bdi>${oneLine(task.receiver, 30)}</bdi></span>
      <span class="top">${task.is_final ? nothing : dueChip(task.deadline)}
        ${task.is_final ? html`<span class="chip ${task.state === "completed" ? "good" : "high"}">${task.state}</span>`
          : nothing}<span class="grow"></span><time class="faint">${ago(task.moved_at)}</time></span>
      ${question?.text ? html`<span class="question"><bdi>${oneLine(question.text, 120)}</bdi></span>` : nothing}</a>`;
  }

  /** @param {any[]} waits */
  #waits(waits) {
    if (!waits.length) return nothing;
    const rows = waits.map((one) => [
      agentLink(one.asker),
      agentLink(one.waits_for),
      ago(one.since),
      one.what,
      html`<a href=${addressOf("thread", one.thread)}>
        <bdi>${oneLine(one.subject || one.text || "open", 100)}</bdi></a>`,
    ]);
    return html`<section class="waits" aria-label="Who waits for whom">
      <h2>Who waits for whom <span class="faint">${waits.length}</span></h2>
      ${table("Table", ["who", "waits for", "since", "what", "about"], rows)}</section>`;
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
    const column = Math.max(
      0,
      columns.findIndex((tasks) => tasks.some((task) => task.id === this.picked)),
    );
    const at = columns[column].findIndex((task) => task.id === this.picked);
    const isReading = document.querySelector(".reader")?.contains(document.activeElement);
    if (isReading && (name === "esc" || name === "q" || name === "left")) {
      go("#/tasks");
      requestAnimationFrame(() => this.focus());
      return true;
    }
    if (name === "i" && mayAct()) {
      this.#give();
      return true;
    }
    if (name === "x" && this.#open) {
      this.#cancel(this.#open);
      return true;
    }
    const entry = this.#open && (entryOf(this.#open.id) ?? entryOf(this.#open.last));
    const action = entry && offered(entry).find((one) => one.key === name);
    if (action) {
      composer.begin(action, [entry]);
      return true;
    }
    if (isReading) return reader.key(name);
    if (name === "j" || name === "down") return this.#pick(columns[column][at + 1]);
    if (name === "k" || name === "up") return this.#pick(columns[column][at - 1]);
    if (name === "left" || name === "right") {
      const others = name === "left" ? columns.slice(0, column).reverse() : columns.slice(column + 1);
      const tasks = others.find((each) => each.length);
      return this.#pick(tasks?.[Math.min(Math.max(at, 0), tasks.length - 1)]);
    }
    if ((name === "enter" || name === "o") && this.picked) {
      go(addressOf("tasks", "", { open: this.picked }));
      return true;
    }
    if (name === "esc" && this.place.filters.has("open")) {
      go("#/tasks");
      return true;
    }
    return false;
  }

  /** @returns {Task | undefined} the task that is open or picked */
  get #open() {
    return this.#all()
      .flat()
      .find((task) => task.id === this.picked);
  }

  /** @param {Task} task */
  async #cancel(task) {
    if (task.giver !== person() || task.is_final || !mayAct()) return;
    if (
      !(await confirm({
        title: "Cancel this task?",
        text: `${oneLine(task.receiver, 60)} is told to stop: ${oneLine(task.subject, 100)}`,
        button: "Cancel the task",
      }))
    )
      return;
    composer.begin({ key: "x", name: begun("cancel"), asks: "Why?", optional: false }, [], {
      verb: "task_step",
      words: "reason",
      params: { id: task.id, step: "cancel" },
      heading: "Cancel the task",
      done: "Canceled.",
    });
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

// -- other systems

class Systems extends Page {
  title = "Other systems";
  /** @type {Set<string>} */
  #pinging = new Set();

  /** @type {Source<any[]>} */
  source = new Source(async () => {
    const [{ peers }, { links }, board] = await Promise.all([
      client.call("mail/peers"),
      client.call("links").catch(() => ({ links: [] })),
      client.call("mail/board", { limit: 100 }),
    ]);
    return peers.map((/** @type {any} */ peer) => ({
      ...peer,
      link: links.find((/** @type {any} */ one) => one.system === peer.system) ?? null,
      waits: board.links?.find((/** @type {any} */ one) => one.system === peer.system) ?? null,
    }));
  });

  template() {
    const many = this.source.value?.length;
    return single(
      this.title,
      html`<span class="faint">${many ? amount(many) : ""}</span>`,
      framed(this.source, {
        isEmpty: (peers) => !peers.length,
        empty: () => ({
          title: "This room is alone.",
          text: "To link it with another room, type there and here:",
          command: "postroom peers invite",
        }),
        content: (peers) =>
          html`<div class="cards">${peers.map((/** @type {any} */ peer) => this.#card(peer))}</div>`,
      }),
    );
  }

  /** @param {any} peer */
  #card(peer) {
    const { link, waits } = peer;
    const state = !peer.trusted ? "not trusted" : (link?.state ?? waits?.state ?? "no link");
    const isUp = state === "connected" || state === "up"; // a link, or a room that fetches its mail
    return html`<article class="system"
      aria-label=${oneLine(peer.system, 60)}><header><h2><bdi>${oneLine(peer.system, 60)}</bdi></h2><span
      class="chip ${isUp ? "good" : "high"}">${oneLine(state, 40)}</span></header>
      <dl>${[
        ["address", peer.url || peer.place],
        ["problem", link?.problem ?? waits?.reason],
        ["since", ago(waits?.since)],
        ["sent", link?.sent],
        ["taken", link?.taken],
        ["waits here", link?.waiting],
        ["it sees", peer.exposure],
      ]
        .filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([name, value]) => html`<div><dt>${name}</dt><dd><bdi>${oneLine(value, 200)}</bdi></dd></div>`)}</dl>
      <button type="button" @click=${() => this.#ping(peer.system)}>
        ${this.#pinging.has(peer.system) ? "Pinging…" : "Ping"}</button></article>`;
  }

  /** @param {string} system */
  async #ping(system) {
    if (this.#pinging.has(system)) return;
    this.#pinging.add(system);
    redraw();
    try {
      const answer = await client.call("ping_peer", { system });
      const name = oneLine(system, 60);
      if (answer.answers) say(`${name} answers in ${Math.round(answer.seconds * 1000)} ms.`);
      else say(`${name} does not answer: ${oneLine(`${answer.problem ?? ""} ${answer.hint ?? ""}`, 400)}`, true);
    } catch (error) {
      sayError(error);
    }
    this.#pinging.delete(system);
    redraw();
  }

  focus() {
    focusOn(".system button");
  }
}

export const systems = new Systems();

// -- numbers

const EVERY = 5000; // milliseconds between two looks

/**
 * What is drawn of the minutes: column, words, and how a value is written.
 * @type {[string, string, (value: number) => string][]}
 */
const CHARTS = [
  ["sent", "sent a minute", amount],
  ["settled", "settled a minute", amount],
  ["died", "died a minute", amount],
  ["backlog", "unsettled", amount],
  ["calls", "calls a minute", amount],
  ["errors", "errors a minute", amount],
  ["memory", "memory of the service", size],
  [
    "cpu",
    "processor, of one core",
    (value) => `${value < 6 ? ((value / 60) * 100).toFixed(1) : Math.round((value / 60) * 100)} %`,
  ],
];

class Numbers extends Page {
  title = "Numbers";
  /** @type {any} */
  #diagnosis = null;
  #isChecking = false;

  /** @type {Source<{stats: any, minutes: any}>} */
  source = new Source(async () => {
    const [stats, minutes] = await Promise.all([client.call("mail/room_stats"), client.call("numbers")]);
    return { stats, minutes };
  });

  refresh() {
    this.source.refresh(EVERY);
  }

  template() {
    const { value } = this.source;
    const head = html`<span class="faint">${value ? `counted since ${clockTime(value.minutes.since)}` : ""}</span>
      <span class="grow"></span>
      ${isOperator() ? html`<button type="button" ?disabled=${this.#isChecking} @click=${() => this.#check()}>
        ${this.#isChecking ? "Checking…" : "Run the doctor"}</button>` : nothing}`;
    return single(
      this.title,
      head,
      framed(this.source, {
        isEmpty: ({ stats }) => !stats.letters,
        empty: () => ({ title: "No letter was counted yet.", text: "Numbers appear with the first letter." }),
        content: ({ stats, minutes }) =>
          html`<div class="numbers" tabindex="0" role="group" aria-label="Numbers of the room">
            ${this.#diagnosis ? this.#findings() : nothing}${totals(stats)}${charts(minutes)}${rates(stats)}</div>`,
      }),
    );
  }

  #findings() {
    const findings = this.#diagnosis.findings.filter((/** @type {any} */ one) => one.level !== "ok");
    return html`<section class="findings" aria-label="What the doctor found"><h2>${this.#diagnosis.healthy
      ? "The doctor found nothing wrong" : "The doctor found something"}</h2>
      <ul>${findings.map((/** @type {any} */ one) => html`<li><span
        class="chip ${one.level === "error" ? "urgent" : one.level === "warning" ? "high" : ""}">${one.level}</span>
        <bdi>${oneLine(one.what, 300)}</bdi> <span
          class="faint"><bdi>${oneLine(one.hint ?? "", 300)}</bdi></span></li>`)}</ul></section>`;
  }

  async #check() {
    const many = this.source.value?.stats.letters ?? 0;
    if (
      many > 100_000 &&
      !(await confirm({
        title: "Run the doctor?",
        text: `It reads all ${amount(many)} letters, which takes seconds.`,
        button: "Run it",
      }))
    )
      return;
    this.#isChecking = true;
    redraw();
    try {
      this.#diagnosis = await client.act("doctor", {});
    } catch (error) {
      sayError(error);
    }
    this.#isChecking = false;
    redraw();
  }

  focus() {
    focusOn(".numbers");
  }
}

/** @param {any} stats */
function totals(stats) {
  const unread = Object.entries(stats.unread)
    .filter(([, many]) => many)
    .reverse()
    .map(([name, many]) => `${amount(Number(many))} ${name}`)
    .join(", ");
  const figures = [
    ["letters", amount(stats.letters), ""],
    ["in inboxes", amount(stats.states.unread), unread ? `not read: ${unread}` : ""],
    ["claimed", amount(stats.states.claimed), ""],
    ["queued", amount(stats.states.queued), ""],
    ["done", amount(stats.states.done), ""],
    ["dead", amount(stats.states.dead), ""],
    ["agents", amount(stats.agents), ""],
    ["oldest unread", ago(stats.oldest_unread_at) || "none", ""],
    ["damaged, set aside", amount(stats.quarantined), ""],
  ];
  return html`<dl class="totals">${figures.map(([name, value, more]) =>
    html`<div><dt>${name}</dt><dd>${value}${more ? html`<small class="faint">${more}</small>`
      : nothing}</dd></div>`)}</dl>`;
}

/** @param {{columns: string[], minutes: any[][]}} given */
function charts({ columns, minutes }) {
  if (minutes.length < 2) return html`<p class="faint">The charts begin after the second minute.</p>`;
  return html`<div class="charts">${CHARTS.filter(([name]) => columns.includes(name)).map(([name, words, written]) => {
    const values = minutes.map((row) => Number(row[columns.indexOf(name)] ?? 0));
    const last = values[values.length - 1];
    return html`<figure><figcaption><b>${written(last)}</b> <span
      class="faint">${words}; most ${written(Math.max(...values))}</span></figcaption>${chart(values,
      `${words}: now ${written(last)}`)}</figure>`;
  })}</div>`;
}

/** @param {number[]} values @param {string} label */
function chart(values, label) {
  const step = Math.max(1, Math.ceil(values.length / 240));
  const drawn = [];
  for (let at = 0; at < values.length; at += step) drawn.push(Math.max(...values.slice(at, at + step)));
  const most = Math.max(...drawn, 1e-9);
  const points = drawn
    .map(
      (value, at) =>
        `${((at / Math.max(1, drawn.length - 1)) * 240).toFixed(1)},${(47 - (value / most) * 44).toFixed(1)}`,
    )
    .join(" ");
  return html`<svg class="chart" viewBox="0 0 240 48" preserveAspectRatio="none" role="img" aria-label=${label}><polygon
    points="0,48 ${points} 240,48" /><polyline points=${points} /></svg>`;
}

/** @param {any} stats */
function rates(stats) {
  if (!stats.rates?.length) return nothing;
  const share = (/** @type {number} */ part, /** @type {number} */ all) =>
    all ? `${Math.round((100 * part) / all)} %` : "";
  const rows = stats.rates.map((/** @type {any} */ rate) => [
    html`<bdi>${oneLine(rate.name, 60)}</bdi>`,
    amount(rate.letters),
    share(rate.rung, rate.letters),
    share(rate.shown, rate.letters),
    share(rate.acknowledged, rate.letters),
  ]);
  const columns = ["channel", "#letters", "#rung", "#shown", "#acknowledged"];
  return html`<section aria-label="Alerts"><h2>Alerts</h2>${table("Table of alerts", columns, rows)}</section>`;
}

export const numbers = new Numbers();
