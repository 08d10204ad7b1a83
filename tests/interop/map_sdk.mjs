// Real connections of @multi-agent-protocol/sdk, told what to do line by line on standard input; what comes of it, and
// what they are told unasked, goes to standard output. Run in the folder where the packages are installed.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
globalThis.WebSocket ??= require("ws").WebSocket;
const sdk = await import(pathToFileURL(require.resolve("@multi-agent-protocol/sdk")).href);
const say = (told) => process.stdout.write(JSON.stringify(told) + "\n");
const people = new Map();

async function stream(url) {
  const socket = new WebSocket(url);
  await sdk.waitForOpen(socket, 10000);
  return sdk.websocketStream(socket);
}

const opened = {
  async agent({ url, name, auth, late, ...more }) {
    const agent = new sdk.AgentConnection(await stream(url), { name, ...more });
    agent.onMessage((message) => say({ who: name, message }));
    people.set(name, agent);
    if (late) {
      const first = await agent.connectOnly({});
      const proven = await agent.authenticate({ method: auth.method, token: auth.credential });
      return { first, proven, agent: await agent.register() };
    }
    return agent.connect({ auth });
  },
  async plainAgent({ url, name, auth, ...more }) {
    const agent = await sdk.AgentConnection.connect(url, { name, auth, ...more });
    people.set(name, agent);
    agent.onMessage((message) => say({ who: name, message }));
    return { agentId: agent.agentId };
  },
  async answerer({ url, name, auth, answer }) {
    const agent = new sdk.AgentConnection(await stream(url), { name });
    agent.onMessage((message) => void agent.reply(message, answer));
    people.set(name, agent);
    return agent.connect({ auth });
  },
  async client({ url, name, auth }) {
    const client = await sdk.ClientConnection.connect(url, { name, auth });
    people.set(name, client);
    return { sessionId: client.sessionId, capabilities: client.serverCapabilities };
  },
  async gateway({ url, name, auth, options }) {
    const gateway = new sdk.GatewayConnection(await stream(url), { name, ...options });
    people.set(name, gateway);
    return gateway.connect({ auth });
  },
};

async function listen({ who, filter }) {
  const subscription = await people.get(who).subscribe(filter);
  (async () => {
    for await (const event of subscription) say({ who, event });
  })();
  return { id: subscription.id };
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, what, who, args = [], ...more } = JSON.parse(line);
  try {
    let result;
    if (what in opened) result = await opened[what](more);
    else if (what === "listen") result = await listen({ who, ...more });
    else result = await people.get(who)[what](...args);
    say({ id, result: result === undefined ? null : result });
  } catch (error) {
    say({ id, error: { name: error.name, message: error.message, code: error.code, data: error.data } });
  }
});
