// The SDK's real MAPServer, as a program: node map_server.mjs NAME [PORT] [API-KEY]. It prints its port when it listens.
// The SDK ships a class only. It delivers nothing until onDeliver is wired; two notifications to one connection
// must not overlap, or its stream writer loses the second.
import { WebSocket, WebSocketServer } from "ws";
import { websocketStream } from "@multi-agent-protocol/sdk";
import { APIKeyAuthenticator, MAPServer } from "@multi-agent-protocol/sdk/server";

globalThis.WebSocket ??= WebSocket; // websocketStream needs it, and Node has one from 22 on
const [name, port = "0", key] = process.argv.slice(2);
const auth = key && {
  required: true,
  authenticators: [
    new APIKeyAuthenticator({ validateKey: async (given) => ({ valid: given === key, principalId: "link" }) }),
  ],
};
const server = new MAPServer({ name, version: "0.1.15", mail: { enabled: true }, ...(auth && { auth }) });
const routers = new Set();
const told = new Map(); // per connection, what it is told one after the other
server.messages.onDeliver((agentId, message) => {
  const session = server.agents.get(agentId)?.sessionId;
  for (const router of routers) {
    if (router.session?.id !== session) continue;
    const before = told.get(router) ?? Promise.resolve();
    told.set(router, before.then(() => router.notify("map/message", { message })).catch(() => {}));
  }
});

const sockets = new WebSocketServer({ host: "127.0.0.1", port: Number(port) });
sockets.on("connection", async (socket) => {
  const router = server.accept(websocketStream(socket), { role: "agent", transportType: "websocket" });
  routers.add(router);
  socket.on("close", () => {
    routers.delete(router);
    told.delete(router);
    for (const agent of server.agents.list({ sessionId: router.session?.id })) server.agents.unregister(agent.id);
  });
  await router.start();
});
sockets.on("listening", () => console.log(sockets.address().port));
