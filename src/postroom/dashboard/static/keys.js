/**
 * Keys by name, and the table of keys for help and palette. They mean what they mean in `postroom inbox`.
 *
 * A key means nothing while one types, composes a character, holds a modifier or is in a dialog. Single keys can be turned
 * off, for people who speak to their computer.
 */

import { store, stored } from "./app.js";

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
export const EVERYWHERE = [
  ["1 … 8", "the views, in the order of the menu"],
  ["/", "search"],
  ["Ctrl-K  .", "commands by name"],
  ["?", "this page"],
  ["w", "write a new letter"],
];
export const LISTS = [
  ["↑ ↓  j k", "the one above, the one below"],
  ["Space  g G", "a page on; to the beginning, to the end"],
  ["Enter  o", "open it: the letter whole, and its thread"],
  ["n p", "when one is open: the next, the one before"],
  ["q Esc ←", "back to the list"],
  ["v", "mark it; what follows is for all that are marked"],
  ["y", "copy its id"],
  [",", "hold what arrives, and go on"],
];
export const WAITING = [
  ["s", "what you sent, and back to what waits"],
  ["f", "show news, or fold them"],
];
