/** Other systems: who is linked, and what hangs. */

import { html } from "../vendor/lit-html/lit-html.js";
import { client, say, sayError } from "../app.js";
import { redraw } from "../draw.js";
import { Source, framed } from "../source.js";
import { ago, amount, oneLine } from "../text.js";

class Systems {
  title = "Other systems";
  /** @type {Set<string>} */
  #pinging = new Set();

  /** @type {Source<any[]>} */
  source = new Source(async () => {
    const [{ peers }, { links }, board] = await Promise.all([
      client.call("mail/peers"), client.call("links").catch(() => ({ links: [] })), client.call("mail/board", { limit: 100 }),
    ]);
    return peers.map((/** @type {any} */ peer) => ({
      ...peer,
      link: links.find((/** @type {any} */ one) => one.system === peer.system) ?? null,
      waits: board.links?.find((/** @type {any} */ one) => one.system === peer.system) ?? null,
    }));
  });

  enter() {
    this.source.load();
  }

  refresh() {
    if (Date.now() - this.source.at > 1900) this.source.load();
  }

  at() {
    return this.source.at;
  }

  template() {
    return html`<div class="panes single"><section class="pane" aria-label="Other systems"><header class="pane-head"><h1>${this.title}</h1><span class="faint">${this.source.value?.length ? amount(this.source.value.length) : ""}</span></header>
      ${framed(this.source, {
        isEmpty: (peers) => !peers.length,
        empty: () => ({ title: "This room is alone.", text: "To link it with another room, type there and here:", command: "postroom peers invite" }),
        content: (peers) => html`<div class="cards">${peers.map((peer) => this.#card(peer))}</div>`,
      })}</section></div>`;
  }

  /** @param {any} peer */
  #card(peer) {
    const { link, waits } = peer;
    const state = !peer.trusted ? "not trusted" : link?.state ?? waits?.state ?? "no link";
    const isUp = state === "up";
    return html`<article class="system" aria-label=${oneLine(peer.system, 60)}><header><h2><bdi>${oneLine(peer.system, 60)}</bdi></h2><span class="chip ${isUp ? "good" : "high"}">${oneLine(state, 40)}</span></header>
      <dl>${[
        ["address", peer.address ?? peer.url ?? peer.place], ["problem", link?.problem ?? waits?.problem ?? waits?.why], ["since", link?.since ? ago(link.since) : null],
        ["next try", link?.next_try_at ? ago(link.next_try_at) : null], ["sent", link?.sent], ["taken", link?.taken], ["waits here", link?.waiting ?? waits?.waiting], ["it sees", peer.exposure],
      ].filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => html`<div><dt>${name}</dt><dd><bdi>${oneLine(value, 200)}</bdi></dd></div>`)}</dl>
      <button type="button" ?disabled=${this.#pinging.has(peer.system)} @click=${() => this.#ping(peer.system)}>${this.#pinging.has(peer.system) ? "Pinging…" : "Ping"}</button></article>`;
  }

  /** @param {string} system */
  async #ping(system) {
    this.#pinging.add(system);
    redraw();
    try {
      const answer = await client.call("ping_peer", { system });
      const seconds = answer.seconds ?? answer.round_trip;
      say(`${oneLine(system, 60)} answers${seconds === undefined ? "" : ` in ${Math.round(seconds * 1000)} ms`}.`);
    } catch (error) {
      sayError(error);
    }
    this.#pinging.delete(system);
    redraw();
  }

  focus() {
    /** @type {HTMLElement | null} */ (document.querySelector(".system button"))?.focus({ preventScroll: true });
  }
}

export const view = new Systems();
