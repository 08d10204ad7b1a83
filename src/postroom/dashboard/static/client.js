/**
 * The one connection to the service: JSON-RPC over a WebSocket, opened again whenever it breaks.
 *
 * The first frame carries the token of the visit; nothing is sent by itself, as a cookie would be. A call that was under
 * way when the connection broke fails with `Lost`: whoever asks to read asks again, and an action is said again with its
 * own key. After each new connection the event `open` tells every view to look anew, because notifications may have
 * been missed.
 */

import { visible } from "./text.js";

/** @typedef {{person: string, acts: boolean, operator: boolean, room: string, version: string, started_at: string}} Visit */

/** A refusal of the service, in its own words. */
export class Refusal extends Error {
  /** @param {{message?: string, code?: number, data?: Record<string, any>}} error */
  constructor(error) {
    super(visible(error.message ?? "the service refused"));
    this.kind = String(error.data?.name ?? "");
    this.hint = visible(error.data?.hint ?? "");
    this.field = String(error.data?.field ?? "");
    this.retryable = Boolean(error.data?.retryable);
  }

  /** Whether other rights are needed. */
  get forbids() {
    return this.kind === "NotAllowed";
  }
}

/** The connection broke before the answer came. */
export class Lost extends Refusal {
  constructor() {
    super({ message: "The connection broke before the answer came.", data: { name: "Lost", retryable: true } });
  }
}

const FIRST_PAUSE = 300; // milliseconds until the first new try
const LONGEST_PAUSE = 8000;
const SILENCE = 60000; // milliseconds without an answer after which a connection is taken for broken

export class Client extends EventTarget {
  /** @type {"connecting" | "open" | "broken" | "over"} */
  status = "connecting";
  /** @type {Visit | null} */
  visit = null;
  brokenSince = 0; // when the connection broke
  nextTry = 0; // when it is tried again
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void, sent: number}>} */
  #calls = new Map();
  /** @type {(() => void)[]} */
  #waiting = []; // calls that wait for the connection
  #number = 0;
  #failures = 0;
  /** @type {number | undefined} */
  #timer = undefined;

  /** @param {string} address @param {() => string | null} token */
  constructor(address, token) {
    super();
    this.address = address;
    this.token = token;
    addEventListener("online", () => this.reconnect());
    document.addEventListener("visibilitychange", () => document.hidden || this.reconnect());
    setInterval(() => this.#checkSilence(), 5000);
  }

  connect() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.address);
    this.#socket = socket;
    socket.onopen = () => this.#authenticate(socket);
    socket.onmessage = (event) => socket === this.#socket && this.#receive(String(event.data));
    socket.onclose = (event) => socket === this.#socket && this.#broken(event.code);
  }

  /** Try again now, where a next try was planned. */
  reconnect() {
    if (this.status === "broken") this.connect();
  }

  /** End the connection for good: the visit is over. @param {string} why */
  end(why) {
    this.status = "over";
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#fail();
    this.dispatchEvent(new CustomEvent("over", { detail: why }));
  }

  /**
   * Call a method. A call that only reads waits for the connection; any other fails at once without one.
   * @param {string} method @param {Record<string, unknown>} [params] @param {{reads?: boolean}} [options]
   * @returns {Promise<any>}
   */
  async call(method, params = {}, { reads = true } = {}) {
    if (this.status === "over") throw new Lost();
    if (this.status !== "open") {
      if (!reads) throw new Lost();
      await new Promise((resolve) => this.#waiting.push(() => resolve(undefined)));
    }
    return this.#send(method, params);
  }

  /** Act as the person: the process that holds the key carries it out. @param {string} verb @param {Record<string, unknown>} params */
  act(verb, params) {
    return this.call("visit/act", { verb, params }, { reads: false });
  }

  /** @param {string} method @param {Record<string, unknown>} params @returns {Promise<any>} */
  #send(method, params) {
    const id = (this.#number += 1);
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, sent: Date.now() });
      this.#socket?.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** @param {WebSocket} socket */
  async #authenticate(socket) {
    try {
      const { visit } = await this.#send("authenticate", { token: this.token() ?? "" });
      if (socket !== this.#socket) return;
      this.visit = visit;
      this.status = "open";
      this.#failures = 0;
      this.brokenSince = 0;
      for (const go of this.#waiting.splice(0)) go();
      this.dispatchEvent(new Event("open"));
    } catch (error) {
      if (error instanceof Refusal && error.forbids) this.end(error.message);
    }
  }

  /** @param {string} text */
  #receive(text) {
    const frame = parseExactly(text);
    if (frame.id === undefined || frame.id === null) {
      this.dispatchEvent(new CustomEvent(String(frame.method), { detail: frame.params }));
      return;
    }
    const call = this.#calls.get(frame.id);
    this.#calls.delete(frame.id);
    if (frame.error) call?.reject(new Refusal(frame.error));
    else call?.resolve(frame.result);
  }

  /** @param {number} code */
  #broken(code) {
    this.#socket = null;
    this.#fail();
    if (this.status === "over") return;
    if (code === 1008 && this.status === "open") return this.end("The visit has ended.");
    if (this.status === "open" || !this.brokenSince) this.brokenSince = Date.now();
    this.status = "broken";
    const pause = Math.min(FIRST_PAUSE * 2 ** this.#failures, LONGEST_PAUSE) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.nextTry = Date.now() + pause;
    this.#timer = setTimeout(() => this.connect(), pause);
    this.dispatchEvent(new Event("broken"));
  }

  #fail() {
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const call of calls) call.reject(new Lost());
  }

  /** A connection over which no answer comes is closed: a computer that slept does not notice by itself. */
  #checkSilence() {
    const oldest = Math.min(...[...this.#calls.values()].map((call) => call.sent));
    if (Date.now() - oldest > SILENCE) this.#socket?.close();
  }
}

/** @param {string} text @returns {any} the JSON, with integers that a browser would round as BigInt */
function parseExactly(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = /** @type {(key: string, value: unknown, context?: {source: string}) => unknown} */ (
    (_key, value, context) =>
      typeof value === "number" && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source)
        ? BigInt(context.source) : value
  );
  return JSON.parse(text, exact);
}
