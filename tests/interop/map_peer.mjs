// An agent on the SDK's own connection: node map_peer.mjs URL NAME [SCOPE]. It prints what it gets as lines of JSON, and sends
// what it reads: {to, payload, meta}, or {answered, payload} for an answer to a message. Its first line is its id.
import readline from "node:readline";
import { WebSocket } from "ws";
import { AgentConnection } from "@multi-agent-protocol/sdk";

globalThis.WebSocket ??= WebSocket;
const [url, name, scope] = process.argv.slice(2);
const say = (said) => console.log(JSON.stringify(said));
const agent = await AgentConnection.connect(url, { name, role: "worker", ...(scope && { scopes: [scope] }) });
agent.onMessage((message) => say({ message }));
say({ id: agent.agentId });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { to, payload, meta, answered } = JSON.parse(line);
  try {
    say({ sent: await (answered ? agent.reply(answered, payload, meta) : agent.send(to, payload, meta)) });
  } catch (error) {
    say({ error: String(error) });
  }
}
await agent.disconnect();
process.exit(0);
