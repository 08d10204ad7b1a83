/**
 * What all views share: the connection, who the person is, what waits for them, and what can be done with it.
 */

import { Client } from "./client.js";
import { redraw } from "./draw.js";
import { Source } from "./source.js";

/** @typedef {import("./types.js").Entry} Entry @typedef {import("./types.js").ActionTable} ActionTable */

const TOKEN = "postroom.visit";

/** @type {Map<string, string>} where a browser has no storage, what is written lives as long as the page */
const memory = new Map();

/** @param {string} name @returns {string | null} a value of this page's storage */
export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return memory.get(name) ?? null;
  }
}

/** @param {string} name @param {string | null} value */
export function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    if (value === null) memory.delete(name);
    else memory.set(name, value);
  }
}

export const token = () => stored(TOKEN);
/** @param {string | null} value */
export const keepToken = (value) => store(TOKEN, value);
/** @param {StorageEvent} event */
export const isToken = (event) => event.key === TOKEN;

export const client = new Client(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, token);

export const person = () => client.visit?.person ?? "human";
export const mayAct = () => client.visit?.acts ?? false;
export const isOperator = () => mayAct() && (client.visit?.operator ?? false);

export const WHATS = ["escalation", "question", "task", "letter", "news"];

/** @type {Source<Entry[]>} */
export const waiting = new Source(async () => {
  const answer = await client.call("mail/waiting", { agent_id: person(), limit: 1000, opened: true });
  /** @type {Entry[]} */
  const entries = answer.waiting;
  return entries.sort((a, b) => WHATS.indexOf(a.what) - WHATS.indexOf(b.what) || a.since.localeCompare(b.since));
});

/** What stands still until the person acts: everything but news. */
export const blocked = () => (waiting.value ?? []).filter((entry) => entry.what !== "news");

/** @type {Source<ActionTable>} */
export const actions = new Source(() => client.call("mail/actions"));

/** @param {Entry} entry @returns {import("./types.js").Action[]} */
export function offered(entry) {
  const table = actions.value?.offered ?? {};
  return table[entry.what === "task" ? `task ${entry.state}` : entry.what] ?? [];
}

/** @param {string} letter @returns {Entry | undefined} */
export const entryOf = (letter) => waiting.value?.find((entry) => entry.letter === letter);

/** What the page says at its foot, to everybody. */
export const notice = { text: "", isBad: false, at: 0 };

/** @param {string} text @param {boolean} [isBad] */
export function say(text, isBad = false) {
  Object.assign(notice, { text, isBad, at: Date.now() });
  redraw();
}

/** @param {unknown} error */
export function sayError(error) {
  const hint = /** @type {any} */ (error)?.hint;
  say(`${error instanceof Error ? error.message : String(error)}${hint ? ` ${hint}` : ""}`, true);
}
