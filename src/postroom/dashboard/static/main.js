/** The page: who comes in, which view is shown, what is around it, and where keys go. */

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import {
  actions,
  addressOf,
  blocked,
  client,
  drawWith,
  go,
  isToken,
  keepToken,
  mayAct,
  notice,
  placeOf,
  redraw,
  say,
  stale,
  STALE,
  store,
  stored,
  token,
  waiting,
  waitingPage,
} from "./app.js";
import { close as closeDialog, composer, help, keyOf, palette, singleKeys, turnSingleKeys } from "./composer.js";
import { flow } from "./flow.js";
import { holdsComposer, reader } from "./reader.js";
import { amount, duration, oneLine, visible } from "./text.js";
import { dead, flowView, letterPage, search, threadPage } from "./views/letters.js";
import { agentPage, agents, numbers, systems, tasks } from "./views/room.js";
import { view as waitingView } from "./views/waiting.js";

/** @typedef {import("./types.js").View} View */

/** The views of the menu, in the order of their keys. @type {[string, View][]} */
const MENU = [
  ["waiting", waitingView],
  ["flow", flowView],
  ["agents", agents],
  ["tasks", tasks],
  ["dead", dead],
  ["search", search],
  ["systems", systems],
  ["numbers", numbers],
];
/** @type {Record<string, View>} */
const VIEWS = { ...Object.fromEntries(MENU), agent: agentPage, letter: letterPage, thread: threadPage };

const AGAIN = 500; // milliseconds between two questions for what waits, however much arrives

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
let place = placeOf(location.hash);
/** @param {string} name @returns {View} */
const viewOf = (name) => (Object.hasOwn(VIEWS, name) ? VIEWS[name] : waitingView);
let current = viewOf(place.view);
let locked = ""; // why nothing is shown
/**
 * @type {{proven: boolean, choose: (takes: boolean) => void} | null} whether another visit takes the place of this
 *   one
 */
let other = null;
let startedAt = ""; // when the service began: another one has forgotten everything
let wantsFocus = false; // the view takes the focus as soon as it can, unless something else has it
let announced = 0; // how many waited when the person was told last
/** @type {Set<string> | null} what was urgent when the person was told last */
let urgent = null;

async function start() {
  drawWith(draw);
  addEventListener("hashchange", moved);
  if ((await entered()) === false) return redraw();
  listen();
  if (!token()) locked = "This page shows a room only to whom it was opened for.";
  else client.connect();
  arrive();
  redraw();
}

/**
 * @returns {Promise<boolean | null>} whether the code in the address opened a visit, which is kept now; null: there
 *   is none, or it was declined
 */
async function entered() {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (!code) return null;
  // Before anything else: a code in the address could be copied with it.
  history.replaceState(null, "", addressOf("waiting"));
  place = placeOf(location.hash);
  const answer = await fetch("/dashboard/visit", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  })
    .then(async (reply) => ({ ok: reply.ok, ...(await reply.json()) }))
    .catch(() => ({ ok: false, error: "The service does not answer." }));
  if (!answer.ok) locked = `${visible(answer.error)} ${visible(answer.hint ?? "")}`;
  else if (
    !(await isAlive()) ||
    (await new Promise((choose) => {
      other = { proven: answer.visit.proven, choose };
      redraw();
    }))
  )
    keepToken(answer.token);
  else answer.ok = null;
  other = null;
  return answer.ok;
}

/**
 * @returns {Promise<boolean>} whether the visit that this browser has goes on: any page may send a person here with
 *   its own
 */
async function isAlive() {
  if (!token()) return false;
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "visit", params: {} });
  const reply = await fetch("/", {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token()}` },
    body,
  });
  return reply.ok && Boolean((await reply.json()).result);
}

async function moved() {
  const isEntered = await entered();
  if (isEntered) return location.reload();
  if (isEntered === false && client.status === "open") {
    say(locked, true);
    locked = "";
  }
  if (!locked) {
    place = placeOf(location.hash);
    arrive();
  }
  redraw();
}

function listen() {
  document.addEventListener("keydown", pressed);
  addEventListener("storage", (event) => isToken(event) && location.reload());
  client.addEventListener("open", opened);
  client.addEventListener("broken", redraw);
  client.addEventListener("over", (event) => {
    locked = /** @type {CustomEvent} */ (event).detail;
    keepToken(null);
    redraw();
  });
  client.addEventListener("visit/changed", (event) => {
    if (client.visit) client.visit.acts = Boolean(/** @type {CustomEvent} */ (event).detail?.acts);
    redraw();
  });
  flow.addEventListener("waits", () => waiting.refresh(AGAIN));
  flow.addEventListener("tick", () => current.refresh());
  // Times grow old by themselves, and no tick tells of links; a page that nobody sees draws nothing.
  setInterval(() => {
    if (document.hidden) return;
    if (current === systems || current === numbers) current.refresh();
    redraw();
  }, 5000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    current.refresh();
    redraw();
  });
}

function opened() {
  const began = client.visit?.started_at ?? "";
  if (startedAt && startedAt !== began) {
    location.reload();
    return;
  }
  startedAt = began;
  actions.load();
  waiting.load();
  flow.begin();
  current.refresh();
  redraw();
}

function arrive() {
  const next = viewOf(place.view);
  if (!Object.hasOwn(VIEWS, place.view)) say(`The dashboard has no page ${oneLine(place.view, 40)}.`, true);
  if (next !== current) {
    if (composer.isOpen) composer.close();
    closeDialog();
    current.leave?.();
  }
  current = next;
  composer.settled = () => current.refresh();
  composer.closed = () => current.focus?.();
  current.enter(place);
  wantsFocus = true;
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (locked || other) return;
  const name = keyOf(event);
  if (!name) return;
  const number = Number(name);
  if (name === "palette" || name === ".") palette(commands());
  else if (name === "?") help();
  else if (name === "y") copyId();
  else if (name === "/") document.getElementById("search")?.focus();
  else if (number >= 1 && number <= MENU.length) go(addressOf(MENU[number - 1][0]));
  else if (composer.isOpen && name === "esc") composer.close();
  else if (current.key?.(name)) redraw();
  else if (name === "w") composer.write();
  else return;
  event.preventDefault();
}

function copyId() {
  const id = reader.letter || reader.thread;
  if (!id) return say("No letter is open.", true);
  navigator.clipboard.writeText(id).then(
    () => say(`Copied ${id}.`),
    () => say("The browser does not let this page copy.", true),
  );
}

/** @returns {import("./composer.js").Command[]} */
function commands() {
  return [
    ...(current.commands?.() ?? []),
    ...MENU.map(([name, view], at) => ({ name: view.title, key: String(at + 1), run: () => go(addressOf(name)) })),
    { name: "Write a new letter", key: "w", run: () => composer.write() },
    { name: "Keys", key: "?", run: () => requestAnimationFrame(help) },
    { name: "Light, dark, or as the system says", key: "", run: turnScheme },
    { name: `Turn single-letter shortcuts ${singleKeys() ? "off" : "on"}`, key: "", run: turnSingleKeys },
    { name: notes() ? "Turn desktop notes off" : "Turn desktop notes on", key: "", run: turnNotes },
    { name: "Lock: end all visits", key: "", run: lock },
  ];
}

function turnScheme() {
  const dataset = document.documentElement.dataset;
  const next = { "": "dark", dark: "light", light: "" }[dataset.scheme ?? ""] ?? "";
  if (next) dataset.scheme = next;
  else delete dataset.scheme;
  store("postroom.scheme", next || null);
  say(next ? `Always ${next}.` : "Light or dark as the system says.");
  dispatchEvent(new Event("scheme"));
}

const notes = () => stored("postroom.notes") === "on" && globalThis.Notification?.permission === "granted";
async function turnNotes() {
  const turnsOn = !notes();
  if (turnsOn && (await Notification.requestPermission()) !== "granted")
    return say("The browser does not allow notes.", true);
  store("postroom.notes", turnsOn ? "on" : null);
  say(turnsOn ? "Something new that waits for you makes a desktop note." : "No desktop notes.");
}

async function lock() {
  await client.call("visit/lock").catch(() => {});
  client.end("All visits were ended.");
}

/** The title, the icon and a note say what waits for the person, also while the tab is hidden. */
function announce() {
  const many = blocked().length;
  document.title = `${many ? `(${many}${waitingPage.more ? "+" : ""}) ` : ""}${current.title} · Postroom`;
  const icon = document.getElementById("icon");
  const address = icon?.getAttribute("href")?.replace(/icon(-waiting)?\.svg$/, many ? "icon-waiting.svg" : "icon.svg");
  if (icon && address && icon.getAttribute("href") !== address) icon.setAttribute("href", address);
  if (many > announced && document.hidden && notes())
    new Notification("Postroom", { body: `${many} wait for you`, tag: "postroom" });
  announced = many;
  if (!waiting.at) return;
  const now = blocked().filter((entry) => entry.priority === "urgent");
  const fresh = now.find((entry) => urgent && !urgent.has(entry.letter));
  urgent = new Set(now.map((entry) => entry.letter));
  if (fresh) say(`Urgent, from ${oneLine(fresh.from, 40)}: ${oneLine(fresh.subject || fresh.text, 80)}`);
}
waiting.listen(announce);

function draw() {
  announce();
  render(other ? otherPage(other) : locked ? lockedPage() : page(), root);
  if (!wantsFocus || locked || other) return;
  if (document.activeElement === document.body) current.focus?.();
  wantsFocus = document.activeElement === document.body;
}

const UNPROVEN = "Opened without the person's key";

/** @param {NonNullable<typeof other>} other */
function otherPage({ proven, choose }) {
  return html`<main class="locked"><h1><img src=${icon()} alt="" width="32" height="32"> Postroom</h1>
    <p role="alert">A link opened another visit, while one is open in this browser.
      ${proven ? "The other one was opened with the person's key."
        : `${UNPROVEN}: an agent may have made the link.`}</p>
    <p><button type="button" @click=${() => choose(false)}>Stay in this visit</button>
      <button type="button" @click=${() => choose(true)}>Change to the other one</button></p></main>`;
}

function lockedPage() {
  return html`<main class="locked"><h1><img src=${icon()} alt="" width="32" height="32"> Postroom</h1>
    <p role="alert">${locked}</p><p>Open it again from a terminal:</p><p><code>postroom dashboard</code></p>
    <p class="faint">What you wrote and did not send is kept in this browser.</p></main>`;
}

const icon = () => document.getElementById("icon")?.getAttribute("href") ?? "";

function page() {
  const isOld = client.status !== "open" && client.brokenSince > 0 && Date.now() - client.brokenSince > STALE;
  const seconds = Math.max(0, Math.ceil((client.nextTry - Date.now()) / 1000));
  const old = isOld
    ? stale(
        current.at() || client.brokenSince,
        `The service does not answer; ${seconds ? `the next try is in ${duration(seconds)}` : "trying now"}.`,
      )
    : nothing;
  return html`<a class="skip" href="#main" @click=${(/** @type {Event} */ event) => {
    event.preventDefault();
    current.focus?.();
  }}>To the content</a>
    <header class="head"><a class="brand" href="#/waiting"><img src=${icon()} alt="" width="20"
      height="20"> Postroom</a>
      <search><form @submit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        find();
      }}><label for="search" class="unseen">Search</label>
        <input id="search" type="search" placeholder="Search" autocomplete="off" spellcheck="false"
          @keydown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && current.focus?.()}><kbd
          aria-hidden="true">/</kbd></form></search>
      ${connection()}
      <button type="button" ?disabled=${!mayAct()} @click=${() => composer.write()}>Write</button>
      <button type="button" class="plain" title="Commands" @click=${() => palette(commands())}><span
        aria-hidden="true">☰</span><span class="unseen">Commands</span></button></header>
    <nav aria-label="Views">${MENU.map(
      (
        [name, view],
        at,
      ) => html`<a href=${addressOf(name)} aria-current=${view === current || (name === "agents"
        && current === agentPage) ? "page" : nothing}>
      <span>${view.title}</span>${count(name)}<kbd aria-hidden="true">${at + 1}</kbd></a>`,
    )}</nav>
    <main id="main" class=${isOld ? "old" : ""}>${old}${client.visit?.proven === false
      ? html`<p class="notice bad unproven">${UNPROVEN}: it can
      ${mayAct() ? "write, but not approve" : "only look"}.</p>` : nothing}${current.template()}</main>
    ${composer.isOpen && !holdsComposer() ? html`<div class="drawer">${composer.template()}</div>` : nothing}
    <div class="notices" role="status" aria-live="polite">${notice.text && Date.now() < notice.until
      ? html`<p class=${notice.isBad ? "bad" : ""}>${notice.text}</p>` : nothing}</div>`;
}

/** @param {string} name */
function count(name) {
  if (name !== "waiting") return nothing;
  const many = blocked().length;
  return many ? html`<b class="count">${amount(many)}${waitingPage.more ? "+" : ""}</b>` : nothing;
}

function connection() {
  if (client.status === "broken")
    return html`<span class="connection bad"><i aria-hidden="true"></i>not connected</span>`;
  if (client.status !== "open") return html`<span class="connection"><i aria-hidden="true"></i>connecting</span>`;
  return html`<span class="connection good"><i
    aria-hidden="true"></i><span>${flow.rateWords()}</span>${mayAct() ? nothing
    : html` <span class="chip">looks only</span>`}</span>`;
}

function find() {
  const input = /** @type {HTMLInputElement} */ (document.getElementById("search"));
  go(addressOf("search", "", { q: input.value.trim() }));
  input.blur();
}

start();
