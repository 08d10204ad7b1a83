// An agent on agentic-mesh's own stream and connection, at a Unix socket: node mesh_peer.mjs PATH NAME. It prints what
// it gets as lines of JSON, and asks what it reads: {method, params}.
import { EventEmitter } from "node:events";
import net from "node:net";
import readline from "node:readline";
import { BaseConnection, createTunnelStream } from "agentic-mesh";

const [path, name] = process.argv.slice(2);
const say = (said) => console.log(JSON.stringify(said));
const socket = net.connect(path);
await new Promise((resolve) => socket.once("connect", resolve));
const transport = Object.assign(new EventEmitter(), {
  isConnected: () => !socket.destroyed,
  send: (_, data) => (socket.write(data), true),
});
socket.on("data", (data) => transport.emit("data", "house", data));
socket.on("close", () => transport.emit("peer:disconnected", "house", "closed"));

const stream = createTunnelStream({ transport, peerId: "house" });
const line = new BaseConnection({ stream, onNotification: (method, params) => say({ method, params }) });
await line.start();
await line.request("map/connect", { protocolVersion: 1, participantType: "agent", name });
const { agent } = await line.request("map/agents.register", { name, role: "mesh" });
say({ id: agent.id });
for await (const text of readline.createInterface({ input: process.stdin })) {
  const { method, params } = JSON.parse(text);
  try {
    say({ result: await line.request(method, params) });
  } catch (error) {
    say({ error: error.code });
  }
}
process.exit(0);
