/** Numbers: is it healthy, and is it getting worse? */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { client, isOperator, sayError } from "../app.js";
import { confirm } from "../dialogs.js";
import { redraw } from "../draw.js";
import { Source, framed } from "../source.js";
import { ago, amount, clockTime, oneLine, size } from "../text.js";

const EVERY = 5000; // milliseconds between two looks

/** What is drawn of the minutes: column, words, and how a value is written. @type {[string, string, (value: number) => string][]} */
const CHARTS = [
  ["sent", "sent a minute", amount], ["settled", "settled a minute", amount], ["died", "died a minute", amount], ["backlog", "unsettled", amount],
  ["calls", "calls a minute", amount], ["errors", "errors a minute", amount], ["rss", "memory of the service", size], ["cpu", "processor, of one core", (value) => `${Math.round(value * 100)} %`],
];

class Numbers {
  title = "Numbers";
  /** @type {any} */
  #diagnosis = null;
  #isChecking = false;

  /** @type {Source<{stats: any, minutes: any}>} */
  source = new Source(async () => {
    const [stats, minutes] = await Promise.all([client.call("mail/room_stats"), client.call("numbers")]);
    return { stats, minutes };
  });

  enter() {
    this.source.load();
  }

  refresh() {
    if (Date.now() - this.source.at > EVERY) this.source.load();
  }

  at() {
    return this.source.at;
  }

  template() {
    return html`<div class="panes single"><section class="pane" aria-label="Numbers"><header class="pane-head"><h1>${this.title}</h1>
      <span class="faint">${this.source.value ? `counted since ${clockTime(this.source.value.minutes.since)}` : ""}</span><span class="grow"></span>
      ${isOperator() ? html`<button type="button" ?disabled=${this.#isChecking} @click=${() => this.#check()}>${this.#isChecking ? "Checking…" : "Run the doctor"}</button>` : nothing}</header>
      ${framed(this.source, {
        isEmpty: ({ stats }) => !stats.letters,
        empty: () => ({ title: "No letter was counted yet.", text: "Numbers appear with the first letter." }),
        content: ({ stats, minutes }) => html`<div class="numbers" tabindex="0" role="group" aria-label="Numbers of the room">${this.#diagnosis ? this.#findings() : nothing}${totals(stats)}${charts(minutes)}${rates(stats)}</div>`,
      })}</section></div>`;
  }

  #findings() {
    const findings = this.#diagnosis.findings.filter((/** @type {any} */ one) => one.level !== "ok");
    return html`<section class="findings" aria-label="What the doctor found"><h2>${this.#diagnosis.healthy ? "The doctor found nothing wrong" : "The doctor found something"}</h2>
      <ul>${findings.map((/** @type {any} */ one) => html`<li><span class="chip ${one.level === "error" ? "urgent" : one.level === "warning" ? "high" : ""}">${one.level}</span> <bdi>${oneLine(one.what, 300)}</bdi> <span class="faint"><bdi>${oneLine(one.hint ?? "", 300)}</bdi></span></li>`)}</ul></section>`;
  }

  async #check() {
    const many = this.source.value?.stats.letters ?? 0;
    if (many > 100_000 && !(await confirm({ title: "Run the doctor?", text: `It reads all ${amount(many)} letters, which takes seconds.`, button: "Run it" }))) return;
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
    /** @type {HTMLElement | null} */ (document.querySelector(".numbers"))?.focus({ preventScroll: true });
  }
}

/** @param {any} stats */
function totals(stats) {
  const unread = Object.entries(stats.unread).filter(([, many]) => many).reverse().map(([name, many]) => `${amount(Number(many))} ${name}`).join(", ");
  const figures = [
    ["letters", amount(stats.letters), ""], ["in inboxes", amount(stats.states.unread), unread ? `not read: ${unread}` : ""], ["claimed", amount(stats.states.claimed), ""],
    ["queued", amount(stats.states.queued), ""], ["done", amount(stats.states.done), ""], ["dead", amount(stats.states.dead), ""],
    ["agents", amount(stats.agents), ""], ["oldest unread", ago(stats.oldest_unread_at) || "none", ""], ["damaged, set aside", amount(stats.quarantined), ""],
  ];
  return html`<dl class="totals">${figures.map(([name, value, more]) => html`<div><dt>${name}</dt><dd>${value}${more ? html`<small class="faint">${more}</small>` : nothing}</dd></div>`)}</dl>`;
}

/** @param {{columns: string[], minutes: any[][]}} given */
function charts({ columns, minutes }) {
  if (minutes.length < 2) return html`<p class="faint">The charts begin after the second minute.</p>`;
  return html`<div class="charts">${CHARTS.filter(([name]) => columns.includes(name)).map(([name, words, written]) => {
    const values = minutes.map((row) => Number(row[columns.indexOf(name)] ?? 0));
    const last = values[values.length - 1];
    return html`<figure><figcaption><b>${written(last)}</b> <span class="faint">${words}; most ${written(Math.max(...values))}</span></figcaption>${chart(values, `${words}: now ${written(last)}`)}</figure>`;
  })}</div>`;
}

/** @param {number[]} values @param {string} label */
function chart(values, label) {
  const step = Math.max(1, Math.ceil(values.length / 240));
  const drawn = [];
  for (let at = 0; at < values.length; at += step) drawn.push(Math.max(...values.slice(at, at + step)));
  const most = Math.max(...drawn, 1e-9);
  const points = drawn.map((value, at) => `${((at / Math.max(1, drawn.length - 1)) * 240).toFixed(1)},${(47 - (value / most) * 44).toFixed(1)}`).join(" ");
  return html`<svg class="chart" viewBox="0 0 240 48" preserveAspectRatio="none" role="img" aria-label=${label}><polygon points="0,48 ${points} 240,48" /><polyline points=${points} /></svg>`;
}

/** @param {any} stats */
function rates(stats) {
  if (!stats.rates?.length) return nothing;
  const share = (/** @type {number} */ part, /** @type {number} */ all) => (all ? `${Math.round((100 * part) / all)} %` : "");
  return html`<section aria-label="Alerts"><h2>Alerts</h2><div class="wide" tabindex="0" role="group" aria-label="Table of alerts"><table><thead><tr><th scope="col">channel</th><th scope="col" class="number">letters</th><th scope="col" class="number">rung</th><th scope="col" class="number">shown</th><th scope="col" class="number">acknowledged</th></tr></thead>
    <tbody>${stats.rates.map((/** @type {any} */ rate) => html`<tr><td><bdi>${oneLine(rate.name, 60)}</bdi></td><td class="number">${amount(rate.letters)}</td><td class="number">${share(rate.rung, rate.letters)}</td><td class="number">${share(rate.shown, rate.letters)}</td><td class="number">${share(rate.acknowledged, rate.letters)}</td></tr>`)}</tbody></table></div></section>`;
}

export const view = new Numbers();
