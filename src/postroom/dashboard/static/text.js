/**
 * Text that others wrote, made safe to look at, and the words for times and amounts.
 *
 * Every name, subject and body goes through `visible` before it is shown: characters that hide or reorder text are
 * written out, as the command line writes them out. What is shown is always a text node.
 */

import { HIDDEN } from "./hidden.js";

/** @param {unknown} text @returns {string} the text with every hiding or reordering character as an escape */
export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (found) => `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`);
}

/** @param {unknown} text @param {number} [most] @returns {string} the text on one line, cut */
export function oneLine(text, most = 200) {
  const whole = String(text ?? "");
  const line = visible(head(whole, most * 2).replace(/\s+/g, " ").trim());
  return line.length > most || whole.length > most * 2 ? `${head(line, most)}…` : line;
}

/** @param {string} text @param {number} most @returns {string} its beginning, with no half of a surrogate pair */
export function head(text, most) {
  if (text.length <= most) return text;
  const code = text.charCodeAt(most - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? most - 1 : most);
}

/** @param {string} text @param {number} most @returns {string[]} the text in pieces, cut at blanks where there are some */
export function pieces(text, most = 2000) {
  const found = [];
  let rest = text;
  while (rest.length > most) {
    const piece = head(rest, most);
    const blank = piece.lastIndexOf(" ");
    const end = blank > most / 2 ? blank + 1 : piece.length;
    found.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  found.push(rest);
  return found;
}

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);

/** @param {number} seconds @returns {string} a length of time in its largest unit */
export function duration(seconds) {
  const [unit, size] = UNITS.find(([, each]) => seconds >= each) ?? ["s", 1];
  return `${Math.max(0, Math.floor(seconds / size))} ${unit}`;
}

/** @param {string | null | undefined} at @param {number} [now] @returns {string} how long ago, or in how long */
export function ago(at, now = Date.now()) {
  if (!at) return "";
  const seconds = (now - Date.parse(at)) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (seconds < -1) return `in ${duration(-seconds)}`;
  return seconds < 2 ? "now" : duration(seconds);
}

/** @param {string | number | null | undefined} at @returns {string} the time of day, with the date if it is not today's */
export function clockTime(at) {
  if (!at) return "";
  const moment = new Date(at);
  const time = moment.toLocaleTimeString("en-GB");
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString("en-CA")} ${time}`;
}

/** @param {number | null | undefined} many @returns {string} */
export function amount(many) {
  return (many ?? 0).toLocaleString("en-US");
}

/** @param {number} many @param {string} one @param {string} [more] @returns {string} `1 letter`, `2 letters` */
export function counted(many, one, more = `${one}s`) {
  return `${amount(many)} ${many === 1 ? one : more}`;
}

/** @param {number} bytes @returns {string} */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** @param {unknown} address @returns {string | null} the address if a browser may open it: http and https alone */
export function webAddress(address) {
  return typeof address === "string" && /^https?:\/\/[^\s<>"']{1,2000}$/i.test(address) ? address : null;
}

/** @param {unknown} name @returns {string} a name that is safe on every disk */
export function safeFileName(name) {
  const last = String(name ?? "").split(/[/\\]/).pop() ?? "";
  return last.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[._]+/, "").slice(-100) || "attachment";
}
