/** How a letter looks in a list. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { ago, oneLine } from "./text.js";

/** @typedef {import("./types.js").Summary} Summary @typedef {import("./types.js").Message} Message */

/** @param {Summary} one */
export function letterRow(one) {
  const to = one.to.length ? `${oneLine(one.to[0], 40)}${one.to.length + one.more_to > 1 ? ` +${one.to.length + one.more_to - 1}` : ""}` : "";
  return html`<bdi class="who">${oneLine(one.from, 40)}</bdi><bdi class="whom">${to}</bdi>
    <span class="words">${one.kind === "message" ? nothing : html`<span class="chip">${oneLine(one.kind.replaceAll("_", " "), 24)}</span> `}<bdi>${oneLine(one.subject || one.line || "(no words)", 160)}</bdi></span>
    <time class="faint">${ago(one.at)}</time>`;
}

/** @param {Message} one @returns {Summary} a whole letter in short */
export function summaryOf(one) {
  const to = one.recipients.filter((each) => each.kind !== "bcc").map((each) => each.address);
  return {
    number: 0, id: one.id, from: one.sender, to: to.slice(0, 5), more_to: Math.max(0, to.length - 5), subject: one.subject, line: one.text.trim().split("\n", 1)[0] ?? "",
    kind: one.kind, priority: one.priority, at: one.created_at, thread: one.thread, reply_to: one.in_reply_to, scope: one.scope, parts: one.parts.length, bytes: 0, proven: one.proven, state: null,
  };
}
