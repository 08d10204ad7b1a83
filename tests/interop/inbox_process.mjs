// What agent-inbox's own tests construct, with a process of another program behind it: the classes have the names
// and methods that the tests use, and everything goes over the socket (and SSE for events) of `$INBOX_PROGRAM ipc`.
// A test gets a process and a room of its own, when it first needs one.
import { spawn, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as http from "node:http";
import * as net from "node:net";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach } from "vitest";

const PATIENCE = 60_000; // a bound, not a pace
const QUIET = 1_500; // for an event that must not come
const program = JSON.parse(process.env.INBOX_PROGRAM);
const room = process.env.INBOX_ROOM; // a room to begin with, in which the token is valid
const token = process.env.INBOX_TOKEN;
const EVENTS = ["mail.created", "mail.turn.added", "mail.participant.joined", "mail.closed", "mail.reopened"];
const CAUSED = {
  "mail/create": "mail.created",
  "mail/turn": "mail.turn.added",
  "mail/join": "mail.participant.joined",
  "mail/close": "mail.closed",
};
const running = new Set();

afterEach(() => {
  for (const one of running) one.stop();
});

function line(socketPath, said) {
  return new Promise((resolve, reject) => {
    const client = net.createConnection(socketPath, () => client.write(JSON.stringify(said) + "\n"));
    let heard = "";
    client.on("data", (data) => {
      heard += data;
      if (heard.includes("\n")) {
        client.end();
        resolve(JSON.parse(heard));
      }
    });
    client.on("error", reject);
  });
}

async function until(done, patience = PATIENCE) {
  const end = Date.now() + patience;
  while (!(await done())) {
    if (Date.now() > end) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

class Outside {
  scope = "default";
  events = null;
  heard = {}; // events by type

  async start(socketPath) {
    if (this.child) return;
    running.add(this);
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), "i-"));
    this.socketPath = socketPath ?? path.join(this.folder, "s");
    const file = path.join(this.folder, "room.db");
    for (const end of room ? ["", "-wal"] : []) {
      if (fs.existsSync(room + end)) fs.copyFileSync(room + end, file + end);
    }
    const listens = this.events && EVENTS.some((type) => this.events.listenerCount(type) > 0);
    const port = listens ? await freePort() : 0;
    const env = {
      ...process.env,
      HOME: this.folder,
      INBOX_SOCKET_PATH: this.socketPath,
      INBOX_SCOPE: this.scope,
      INBOX_HTTP_PORT: String(port),
      ...(room ? { INBOX_SQLITE_PATH: file } : {}),
    };
    const log = fs.openSync(path.join(this.folder, "log"), "w");
    this.child = spawn(program[0], [...program.slice(1), "ipc"], { env, stdio: ["ignore", log, log] });
    const isUp = await until(() => line(this.socketPath, { action: "ping" }).then(() => true, () => false));
    if (!isUp) throw new Error(fs.readFileSync(path.join(this.folder, "log"), "utf8"));
    if (listens) await this.listen(port);
  }

  stop() {
    running.delete(this);
    this.stream?.destroy();
    this.child?.kill("SIGKILL");
    if (this.folder) fs.rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
    this.child = null;
  }

  listen(port) {
    return new Promise((resolve, reject) => {
      const headers = token ? { authorization: `Bearer ${token}` } : {};
      this.stream = http.get({ host: "127.0.0.1", port, path: "/subscribe", headers }, (response) => {
        if (response.statusCode !== 200) reject(new Error(`SSE: ${response.statusCode}`));
        let rest = "";
        response.on("data", (data) => {
          const frames = (rest + data).split("\n\n");
          rest = frames.pop();
          for (const frame of frames) this.hear(frame);
          resolve();
        });
        response.on("error", () => {});
      });
      this.stream.on("error", reject);
    });
  }

  hear(frame) {
    const type = /^event: (.*)$/m.exec(frame)?.[1];
    if (!type) return;
    this.heard[type] = (this.heard[type] ?? 0) + 1;
    this.events.emit(type, JSON.parse(/^data: (.*)$/m.exec(frame)[1]));
  }

  // The storage of the tests is synchronous: another process asks for it.
  askNow(said) {
    const script = `
      const client = require("net").createConnection(process.argv[1], () => client.write(process.argv[2] + "\\n"));
      let heard = "";
      client.on("data", (data) => { heard += data; if (heard.includes("\\n")) client.end(); });
      client.on("close", () => process.stdout.write(heard));`;
    const asked = spawnSync(process.execPath, ["-e", script, this.socketPath, JSON.stringify(said)], {
      timeout: PATIENCE,
    });
    return JSON.parse(asked.stdout.toString());
  }

  rpcNow(method, params) {
    return this.askNow({ jsonrpc: "2.0", id: 1, method, params }).result;
  }
}

export class InMemoryStorage {
  outside = new Outside();

  getMessage(id) {
    // The turn that the message is, in whichever conversation it is.
    for (const { id: conversationId } of this.outside.rpcNow("mail/list", {}).conversations) {
      const { turns } = this.outside.rpcNow("mail/turns/list", { conversationId });
      const turn = turns.find((one) => one.source_message_id === id);
      if (turn) return { id, sender_id: turn.participant_id, content: turn.content };
    }
    return undefined;
  }

  getAgent(id) {
    const agent = this.outside.askNow({ action: "list_agents" }).agents.find((one) => one.agentId === id);
    return agent && { agent_id: id, display_name: agent.name, scope: agent.scope, status: agent.status };
  }

  getConversation(id) {
    return this.outside.rpcNow("mail/get", { id })?.conversation;
  }

  getTurns(conversationId) {
    return this.outside.rpcNow("mail/turns/list", { conversationId }).turns;
  }
}

export class MessageRouter {
  constructor(storage, events, scope) {
    Object.assign(storage.outside, { events, scope: scope ?? "default" });
  }
}

export class IpcServer {
  constructor(socketPath, _router, storage) {
    Object.assign(this, { socketPath, outside: storage.outside });
  }

  start() {
    return this.outside.start(this.socketPath);
  }

  async stop() {
    this.outside.stop();
  }
}

export class MailJsonRpcServer {
  constructor(storage) {
    this.outside = storage.outside;
  }

  async handleRequest(request) {
    const { outside } = this;
    await outside.start();
    const type = outside.stream ? CAUSED[request.method] : undefined;
    const before = outside.heard[type] ?? 0;
    const reply = await line(outside.socketPath, request);
    // Once an event of a type was heard, a second one may rightly not come.
    if (type) await until(() => (outside.heard[type] ?? 0) > before, before ? QUIET : PATIENCE);
    return reply;
  }
}
