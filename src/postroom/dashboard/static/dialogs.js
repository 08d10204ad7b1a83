/**
 * Keys and dialogs. Keys mean what they mean in `postroom inbox`; they mean nothing while one types, composes a character,
 * holds a modifier or is in a dialog. Single keys can be turned off, for people who speak to their computer.
 */

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { actions, store, stored } from "./app.js";

// -- keys by name

const NAMES = /** @type {Record<string, string>} */ ({
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", PageUp: "pgup", PageDown: "pgdn", Home: "home", End: "end",
  Enter: "enter", Escape: "esc", " ": "space",
});
const SINGLE = "postroom.keys";

export const singleKeys = () => stored(SINGLE) !== "off";
export const turnSingleKeys = () => store(SINGLE, singleKeys() ? "off" : null);

/** @param {KeyboardEvent} event @returns {string} the name of the key; empty where it is none of ours */
export function keyOf(event) {
  if (event.isComposing || event.defaultPrevented) return "";
  const target = /** @type {Element} */ (event.target);
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") return "palette";
  if (event.ctrlKey || event.metaKey || event.altKey) return "";
  if (target.closest?.("input, textarea, select, dialog, [contenteditable]")) return "";
  const name = NAMES[event.key] ?? (event.key.length === 1 ? event.key : "");
  if ((name === "enter" || name === "space") && target.closest?.("button, a, summary")) return "";
  if (target.closest?.("pre, .wide") && ["left", "right"].includes(name)) return "";
  if (name.length === 1 && !singleKeys()) return "";
  return name;
}

/** What each key is for: in every view. */
const EVERYWHERE = [
  ["1 … 8", "the views, in the order of the menu"],
  ["/", "search"],
  ["Ctrl-K  .", "commands by name"],
  ["?", "this page"],
  ["w", "write a new letter"],
];
const LISTS = [
  ["↓ ↑  j k", "the one below, the one above"],
  ["Space  g G", "a page on; to the beginning, to the end"],
  ["Enter  o", "open it: the letter whole, and its thread"],
  ["n p", "when one is open: the next, the one before"],
  ["q Esc ←", "back to the list"],
  ["v", "mark it; what follows is for all that are marked"],
  ["y", "copy its id"],
];
const WAITING = [
  ["s", "what you sent, and back to what waits"],
  ["f", "show news, or fold them"],
];
const VIEWS = [
  [", t", "Flow: hold what arrives; a table in place of the picture"],
  ["s", "Agents: sort otherwise"],
  ["← →  i x", "Tasks: the next column; give one; cancel yours"],
  ["R", "Dead letters: revive"],
];

// -- the dialogs

/** @typedef {{name: string, key: string, run: () => void}} Command */

const dialog = document.createElement("dialog");
document.body.append(dialog);

/** @param {unknown} content @param {string} label @param {string} [look] */
function open(content, label, look = "") {
  dialog.className = look;
  dialog.setAttribute("aria-label", label);
  render(content, dialog);
  if (!dialog.open) dialog.showModal();
}

export const close = () => dialog.close();
dialog.addEventListener("click", (event) => event.target === dialog && close());

/** @param {string[][]} rows */
const keyTable = (rows) => html`<dl class="keys">${rows.map(([keys, means]) => html`<div><dt>${keys.split(" ").map((key) => (key && key !== "…" ? html`<kbd>${key}</kbd> ` : key))}</dt><dd>${means}</dd></div>`)}</dl>`;

export function help() {
  const table = Object.entries({ ...actions.value?.keys, e: "answer; of a task you took on: its result" }).filter(([key]) => key !== "w");
  open(html`<header><h2>Keys</h2><button type="button" @click=${close}>Close <kbd>Esc</kbd></button></header>
    <div class="columns"><section><h3>Everywhere</h3>${keyTable(EVERYWHERE)}<h3>Lists and letters</h3>${keyTable(LISTS)}<h3>In one view</h3>${keyTable(VIEWS)}</section>
    <section><h3>What waits for you</h3>${keyTable([...table, ...WAITING])}
    <h3>While you write</h3>${keyTable([["Enter", "sends it"], ["Esc", "goes back; what you wrote is kept"]])}
    <label class="switch"><input type="checkbox" .checked=${singleKeys()} @change=${() => { turnSingleKeys(); help(); }}> Single-letter shortcuts</label></section></div>`, "Keys", "help");
}

let query = "";
let at = 0;

/** @param {Command[]} commands */
export function palette(commands) {
  query = "";
  at = 0;
  drawPalette(commands);
  dialog.querySelector("input")?.focus();
}

/** @param {Command[]} commands */
function drawPalette(commands) {
  const words = query.toLowerCase().split(/\s+/);
  const found = commands.filter((one) => words.every((word) => one.name.toLowerCase().includes(word)));
  at = Math.max(0, Math.min(at, found.length - 1));
  const run = (/** @type {Command | undefined} */ one) => { close(); one?.run(); };
  open(html`<input type="text" role="combobox" aria-label="A command" aria-expanded="true" aria-controls="commands" aria-activedescendant=${found.length ? `command-${at}` : nothing}
      placeholder="What do you want to do?" autocomplete="off" .value=${query}
      @input=${(/** @type {Event} */ event) => { query = /** @type {HTMLInputElement} */ (event.target).value; at = 0; drawPalette(commands); }}
      @keydown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && !event.isComposing) run(found[at]);
        else if (event.key === "ArrowDown") at += 1;
        else if (event.key === "ArrowUp") at -= 1;
        else return;
        event.preventDefault();
        if (dialog.open) drawPalette(commands);
      }}>
    <ul id="commands" role="listbox" aria-label="Commands">${found.map((one, place) => html`<li role="option" id="command-${place}" aria-selected=${place === at} @click=${() => run(one)}><span>${one.name}</span>${one.key ? html`<kbd>${one.key}</kbd>` : nothing}</li>`)}</ul>
    ${found.length ? nothing : html`<p class="faint">No command has this name.</p>`}`, "Commands", "palette");
}

/**
 * Ask before something that cannot be taken back. With a number, the person types it.
 * @param {{title: string, text: string, button: string, number?: number}} question @returns {Promise<boolean>}
 */
export function confirm({ title, text, button, number }) {
  let typed = "";
  return new Promise((resolve) => {
    const answer = (/** @type {boolean} */ yes) => { resolve(yes); close(); };
    dialog.addEventListener("close", () => resolve(false), { once: true });
    const draw = () => open(html`<form @submit=${(/** @type {Event} */ event) => { event.preventDefault(); if (number === undefined || typed.trim() === String(number)) answer(true); }}>
      <h2>${title}</h2><p>${text}</p>
      ${number === undefined ? nothing : html`<label>Type the number ${number} to go on <input inputmode="numeric" autocomplete="off" .value=${typed} @input=${(/** @type {Event} */ event) => { typed = /** @type {HTMLInputElement} */ (event.target).value; draw(); }}></label>`}
      <div class="bar"><button class="danger" ?disabled=${number !== undefined && typed.trim() !== String(number)}>${button}</button><button type="button" @click=${() => answer(false)}>No</button></div></form>`, title, "confirm");
    draw();
    /** @type {HTMLElement | null} */ (dialog.querySelector(number === undefined ? "button" : "input"))?.focus();
  });
}
