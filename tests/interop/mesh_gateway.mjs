// agentic-mesh's own FederationGateway and MapServer, at a Unix socket: node mesh_gateway.mjs PATH OWN PEER TOKEN. It
// prints what its agent `bob` gets, and routes the messages that it reads.
import { EventEmitter } from "node:events";
import net from "node:net";
import readline from "node:readline";
import { FederationGateway, MapServer, createTunnelStream } from "agentic-mesh";

const [path, localSystemId, remoteSystemId, token] = process.argv.slice(2);
const say = (said) => console.log(JSON.stringify(said));
const socket = net.connect(path);
await new Promise((resolve) => socket.once("connect", resolve));
const transport = Object.assign(new EventEmitter(), {
  isConnected: () => !socket.destroyed,
  send: (_, data) => (socket.write(data), true),
});
socket.on("data", (data) => transport.emit("data", "house", data));
socket.on("close", () => transport.emit("peer:disconnected", "house", "closed"));

const server = new MapServer({ systemId: localSystemId });
const { id } = server.registerAgent({ agentId: "bob", name: "bob" });
server.setMessageHandler(id, (_, message) => say({ message }));
const gateway = new FederationGateway(server, {
  localSystemId,
  remoteSystemId,
  auth: token ? { method: "bearer", credentials: token } : undefined,
  routing: { trackPath: true },
});
let last;
gateway.on("error", (error) => (last = error.code ?? error.message));
try {
  await gateway.connect(createTunnelStream({ transport, peerId: "house" }));
} catch {}
say({ id, connected: gateway.isConnected, error: last ?? null });
for await (const text of readline.createInterface({ input: process.stdin })) {
  last = undefined;
  const routed = await gateway.route(JSON.parse(text));
  say({ routed, error: last ?? null });
}
process.exit(0);
