/**
 * What happens in the room, as the service tells it in ticks, and the picture of who writes to whom.
 *
 * A tick is a hint: the lists ask for themselves. In the picture agents stand still, by team, on a sunflower; what was
 * written lately are lines. Lines within a team lead from agent to agent. Between teams the busiest are bundled into
 * one bowed line each, which always bends to the left of its way. There are two canvases, because what stands still is
 * drawn once. A pointer or the arrow keys pick an agent: its lines stand out, and all else is dim.
 */

import { addressOf, client, go } from "./app.js";
import { counted, oneLine } from "./text.js";

// -- what happens, in ticks

/** @typedef {import("./types.js").Tick} Tick */

const FADE = 6; // seconds in which a pair loses most of its heat
const LOOKS = 250; // milliseconds between two events `tick`, at least
const WINDOW = 5; // seconds over which the rate is measured

class Flow extends EventTarget {
  /** @type {string[]} */
  names = [];
  /** @type {Map<number, number>} heat by sender * 65536 + recipient */
  heat = new Map();
  number = 0; // of the newest change
  sent = 0;
  settled = 0;
  died = 0;
  waits = -1;
  lastAt = ""; // of the last tick
  isPaused = false;
  /** @type {[number, number][]} [time, letters] of the last seconds */
  #recent = [];
  #cooled = Date.now();
  /** @type {number | undefined} */
  #timer = undefined;

  constructor() {
    super();
    client.addEventListener("flow/tick", (event) => this.#take(/** @type {CustomEvent} */ (event).detail));
  }

  async begin() {
    const answer = await client.call("flow/watch", {}).catch(() => null);
    if (!answer) return;
    this.names = answer.names ?? [];
    this.heat.clear();
    this.number = answer.number ?? 0;
    this.dispatchEvent(new Event("names"));
  }

  /** @param {Tick} tick */
  #take(tick) {
    if (tick.names?.length || tick.from === 0) {
      this.names = [...this.names.slice(0, tick.from), ...(tick.names ?? [])];
      if (tick.from === 0) this.heat.clear();
      this.dispatchEvent(new Event("names"));
    }
    this.number = tick.number;
    this.lastAt = tick.at;
    this.sent += tick.sent;
    this.settled += tick.settled;
    this.died += tick.died;
    this.cool();
    for (const [from, to, many] of tick.pairs ?? []) {
      const pair = from * 65536 + to;
      this.heat.set(pair, (this.heat.get(pair) ?? 0) + many);
    }
    if (tick.sent) this.#recent.push([Date.now(), tick.sent]);
    if (tick.waits !== this.waits) {
      this.waits = tick.waits;
      this.dispatchEvent(new Event("waits"));
    }
    this.dispatchEvent(new Event("pairs"));
    if (this.isPaused || document.hidden) return;
    this.#timer ??= window.setTimeout(() => {
      this.#timer = undefined;
      this.dispatchEvent(new Event("tick"));
    }, LOOKS);
  }

  /** Let all pairs lose heat, as time passed. */
  cool() {
    const seconds = (Date.now() - this.#cooled) / 1000;
    if (seconds < 0.2) return;
    this.#cooled = Date.now();
    const left = Math.exp((-seconds * 2.3) / FADE);
    for (const [pair, heat] of this.heat) {
      if (heat * left < 0.05) this.heat.delete(pair);
      else this.heat.set(pair, heat * left);
    }
  }

  /** @returns {number} letters a second, lately */
  get rate() {
    const from = Date.now() - WINDOW * 1000;
    while (this.#recent.length && this.#recent[0][0] < from) this.#recent.shift();
    return this.#recent.reduce((sum, [, many]) => sum + many, 0) / WINDOW;
  }

  rateWords() {
    const { rate } = this;
    if (!rate) return "quiet";
    return rate < 1
      ? `${counted(Math.ceil(rate * 60), "letter")} a minute`
      : `${counted(Math.round(rate), "letter")} a second`;
  }

  /** @returns {{from: number, to: number, heat: number}[]} the hottest pairs first */
  pairs() {
    return [...this.heat]
      .map(([pair, heat]) => ({ from: Math.floor(pair / 65536), to: pair % 65536, heat }))
      .sort((a, b) => b.heat - a.heat);
  }
}

export const flow = new Flow();

// -- the picture

const BUNDLES = 24; // lines between teams
const PACE = 100; // milliseconds between two pictures
const SLOW_PACE = 1000; // where less motion is wanted
const GOLDEN = Math.PI * (3 - Math.sqrt(5));
const DOT = 2.4;

/** @typedef {{name: string, agents: string[], x: number, y: number, radius: number}} Team */

export class Graph {
  /** @type {Team[]} */
  teams = [];
  picked = ""; // the name of an agent
  /** @type {Map<string, {x: number, y: number, team: number}>} */
  #places = new Map();
  /** @type {Map<string, string>} */
  #scopes = new Map(); // by agent, as the directory says
  /** @type {number | undefined} */
  #timer = undefined;
  #width = 0;
  #height = 0;
  /** @type {Record<string, string>} */
  #colours = {};
  #isIdle = false;
  #isSmall = true; // few enough agents to write their names

  constructor() {
    this.element = document.createElement("div");
    this.element.className = "graph";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "img");
    this.still = document.createElement("canvas");
    this.live = document.createElement("canvas");
    this.label = document.createElement("div");
    this.label.className = "graph-label";
    this.label.hidden = true;
    for (const canvas of [this.still, this.live]) canvas.setAttribute("aria-hidden", "true");
    this.element.append(this.still, this.live, this.label);
    new ResizeObserver(() => this.#resize()).observe(this.element);
    this.element.addEventListener("pointermove", (event) => this.#point(event));
    this.element.addEventListener("pointerleave", () => this.#pick(""));
    this.element.addEventListener("click", () => this.picked && go(addressOf("agent", this.picked)));
    flow.addEventListener("pairs", () => this.#plan());
    flow.addEventListener("names", () => this.#arrange());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#resize());
    addEventListener("scheme", () => this.#resize());
  }

  /** @param {Map<string, string>} scopes the agents of the directory, and the team of each; empty: by its name */
  place(scopes) {
    this.#scopes = scopes;
    this.#arrange();
  }

  /** @param {string} name @returns {boolean} whether the key picked an agent */
  key(name) {
    const step = { left: -1, right: 1, up: -1, down: 1 }[name];
    if (step && document.activeElement === this.element) {
      const order = this.teams.flatMap((team) => team.agents);
      const at = order.indexOf(this.picked);
      this.#pick(order[(at + step + order.length) % order.length] ?? "");
      return true;
    }
    if (name === "enter" && this.picked && document.activeElement === this.element) {
      go(addressOf("agent", this.picked));
      return true;
    }
    return false;
  }

  #arrange() {
    /** @type {Map<string, string[]>} */
    const teams = new Map();
    for (const name of new Set([...this.#scopes.keys(), ...flow.names])) {
      const team = this.#scopes.get(name) || teamOf(name);
      const agents = teams.get(team);
      if (agents) agents.push(name);
      else teams.set(team, [name]);
    }
    const many = [...teams.values()].reduce((sum, agents) => sum + agents.length, 0);
    this.#isSmall = many <= 60;
    this.element.setAttribute(
      "aria-label",
      `Who writes to whom: ${many} agents in ${teams.size} teams. The table says the same.`,
    );
    this.teams = [...teams]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, agents]) => ({ name, agents, x: 0, y: 0, radius: 0 }));
    this.#lay();
  }

  #resize() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth || !clientHeight) return;
    this.#width = clientWidth;
    this.#height = clientHeight;
    const scale = Math.min(devicePixelRatio || 1, 2);
    for (const canvas of [this.still, this.live]) {
      canvas.width = Math.round(clientWidth * scale);
      canvas.height = Math.round(clientHeight * scale);
      canvas.getContext("2d")?.setTransform(scale, 0, 0, scale, 0, 0);
    }
    for (const name of ["ink", "faint", "team", "agent", "line", "bundle", "pick"]) {
      this.label.style.color = `var(--graph-${name})`; // a canvas knows no variables
      this.#colours[name] = getComputedStyle(this.label).color;
    }
    this.label.style.color = "";
    this.#lay();
  }

  /** Give every team a cell of a grid, and every agent a place on its sunflower. */
  #lay() {
    const { teams } = this;
    if (!this.#width || !teams.length) {
      this.#drawStill();
      return;
    }
    const many = teams.length;
    let columns = Math.max(1, Math.round(Math.sqrt((many * this.#width) / this.#height)));
    columns = Math.min(columns, many);
    const rows = Math.ceil(many / columns);
    const [width, height] = [this.#width / columns, this.#height / rows];
    const largest = Math.max(...teams.map((team) => team.agents.length));
    this.#places.clear();
    teams.forEach((team, index) => {
      team.x = width * ((index % columns) + 0.5);
      team.y = height * (Math.floor(index / columns) + 0.5) + 6;
      const room = Math.max(4, Math.min(width, height - 22) / 2 - DOT - 12);
      const spread = room / Math.sqrt(Math.max(largest, 6));
      team.radius = spread * Math.sqrt(team.agents.length) + DOT + 5;
      const seeds = team.agents.map((_, at) => [
        Math.sqrt(at + 0.5) * Math.cos(at * GOLDEN),
        Math.sqrt(at + 0.5) * Math.sin(at * GOLDEN),
      ]);
      const middle = [0, 1].map((axis) => seeds.reduce((sum, seed) => sum + seed[axis], 0) / seeds.length);
      team.agents.forEach((agent, at) => {
        this.#places.set(agent, {
          x: team.x + spread * (seeds[at][0] - middle[0]),
          y: team.y + spread * (seeds[at][1] - middle[1]),
          team: index,
        });
      });
    });
    this.#drawStill();
    this.#drawLive();
  }

  #drawStill() {
    const pen = this.still.getContext("2d");
    if (!pen || !this.#width) return;
    pen.clearRect(0, 0, this.#width, this.#height);
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const team of this.teams) {
      pen.fillStyle = this.#colours.team;
      pen.beginPath();
      pen.arc(team.x, team.y, team.radius, 0, 2 * Math.PI);
      pen.fill();
      pen.fillStyle = this.#colours.faint;
      const most = Math.max(
        6,
        Math.floor(
          this.#width / Math.max(1, this.teams.length > 6 ? Math.sqrt(this.teams.length) : this.teams.length) / 8,
        ),
      );
      pen.fillText(oneLine(team.name, Math.min(24, most)), team.x, Math.max(11, team.y - team.radius - 5));
      pen.fillStyle = this.#colours.agent;
      for (const agent of team.agents) {
        const at = /** @type {{x: number, y: number}} */ (this.#places.get(agent));
        pen.beginPath();
        pen.arc(at.x, at.y, this.#isSmall ? DOT + 1.2 : DOT, 0, 2 * Math.PI);
        pen.fill();
        if (!this.#isSmall) continue;
        pen.fillStyle = this.#colours.ink;
        pen.fillText(oneLine(short(agent, team.name), 18), at.x, at.y + 15);
        pen.fillStyle = this.#colours.agent;
      }
    }
  }

  /** Draw soon, at most every PACE. */
  #plan() {
    if (this.#timer !== undefined || document.hidden || !this.element.isConnected) return;
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? SLOW_PACE : PACE;
    this.#timer = window.setTimeout(
      () =>
        requestAnimationFrame(() => {
          this.#timer = undefined;
          this.#drawLive();
        }),
      pace,
    );
  }

  #drawLive() {
    const pen = this.live.getContext("2d");
    if (!pen || !this.#width || !this.element.isConnected) return;
    flow.cool();
    if (!flow.heat.size && this.#isIdle) return;
    this.#isIdle = !flow.heat.size;
    pen.clearRect(0, 0, this.#width, this.#height);
    /** @type {Map<number, number>} */
    const bundles = new Map();
    /** @type {[string, string][]} */
    const own = [];
    pen.strokeStyle = this.#colours.line;
    for (const [pair, heat] of flow.heat) {
      const [from, to] = [flow.names[Math.floor(pair / 65536)], flow.names[pair % 65536]];
      const [a, b] = [this.#places.get(from), this.#places.get(to)];
      if (!a || !b) continue;
      if (from === this.picked || to === this.picked) own.push([from, to]);
      if (a.team !== b.team) {
        const key = a.team * 65536 + b.team;
        bundles.set(key, (bundles.get(key) ?? 0) + heat);
        continue;
      }
      pen.globalAlpha = Math.min(0.75, 0.15 + heat / 4) * (!this.picked ? 1 : 0.25);
      pen.lineWidth = Math.min(2, 0.7 + heat / 6);
      pen.beginPath();
      pen.moveTo(a.x, a.y);
      pen.lineTo(b.x, b.y);
      pen.stroke();
    }
    pen.strokeStyle = this.#colours.bundle;
    for (const [key, heat] of [...bundles].sort((a, b) => b[1] - a[1]).slice(0, BUNDLES)) {
      const [a, b] = [this.teams[Math.floor(key / 65536)], this.teams[key % 65536]];
      pen.globalAlpha = Math.min(0.85, 0.25 + heat / 10) * (!this.picked ? 1 : 0.2);
      pen.lineWidth = Math.min(4, 1.2 + Math.log2(1 + heat) / 1.5);
      pen.beginPath();
      const bow = { x: (a.x + b.x) / 2 + (b.y - a.y) * 0.18, y: (a.y + b.y) / 2 - (b.x - a.x) * 0.18 };
      const [from, to] = [edgeOf(a, bow), edgeOf(b, bow)];
      pen.moveTo(from.x, from.y);
      pen.quadraticCurveTo(bow.x, bow.y, to.x, to.y);
      pen.stroke();
    }
    pen.strokeStyle = pen.fillStyle = this.#colours.pick;
    pen.globalAlpha = 1;
    pen.lineWidth = 1.6;
    for (const [from, to] of own) {
      const [a, b] = [this.#places.get(from), this.#places.get(to)];
      if (!a || !b) continue;
      pen.beginPath();
      pen.moveTo(a.x, a.y);
      pen.lineTo(b.x, b.y);
      pen.stroke();
    }
    const picked = this.#places.get(this.picked);
    if (picked) {
      pen.beginPath();
      pen.arc(picked.x, picked.y, DOT + 2.5, 0, 2 * Math.PI);
      pen.fill();
    }
    if (flow.heat.size) this.#plan();
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.element.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [near, best] = ["", 14 ** 2];
    for (const [agent, at] of this.#places) {
      const distance = (at.x - x) ** 2 + (at.y - y) ** 2;
      if (distance < best) [near, best] = [agent, distance];
    }
    this.#pick(near);
  }

  /** @param {string} agent */
  #pick(agent) {
    if (agent === this.picked) return;
    this.picked = agent;
    const at = this.#places.get(agent);
    this.label.hidden = !at;
    this.#isIdle = false;
    if (at) {
      this.label.textContent = oneLine(agent, 60);
      const x = Math.max(0, Math.min(at.x - this.label.offsetWidth / 2, this.#width - this.label.offsetWidth));
      this.label.style.transform = `translate(${x}px, ${Math.max(0, at.y - 30)}px)`;
    }
    this.#drawLive();
  }
}

/** @param {string} name @returns {string} the team of an agent without a scope: what its name begins with */
function teamOf(name) {
  const at = name.indexOf("@");
  if (at >= 0) return name.slice(at);
  return /^(.+?)[-_/.]/.exec(name)?.[1] ?? "agents";
}

/**
 * @param {Team} team
 * @param {{x: number, y: number}} to
 * @returns {{x: number, y: number}} where a line to a point leaves the team
 */
function edgeOf(team, to) {
  const length = Math.hypot(to.x - team.x, to.y - team.y) || 1;
  return { x: team.x + ((to.x - team.x) / length) * team.radius, y: team.y + ((to.y - team.y) / length) * team.radius };
}

/** @param {string} name @param {string} team @returns {string} the name without its team */
function short(name, team) {
  return name.startsWith(team) && name.length > team.length + 1 ? name.slice(team.length + 1) : name;
}
