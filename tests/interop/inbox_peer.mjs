// agent-inbox, federated with a peer as its library does it: node inbox_peer.mjs SYSTEM PEER URL. It prints what its
// agents get, and does what it reads, line by line: {send}, {federate}, {disconnect}, {queued}.
import { createInterface } from "node:readline";
import { createAgentInbox } from "agent-inbox";

const [systemId, peer, url] = process.argv.slice(2);
const say = (told) => process.stdout.write(JSON.stringify(told) + "\n");
const socketPath = `${process.env.HOME}/inbox.sock`;
const inbox = await createAgentInbox({
  // its own link to a MAP server is tried first: that is how it finds the SDK
  config: { socketPath, scope: "default", map: { enabled: true, server: url }, federation: { systemId, peers: [{ systemId: peer, url }] } },
});
inbox.events.on("message.created", (message) => {
  if (message.sender_id.includes("@")) say({ message });
});
say({ federated: inbox.federation.isConnected(peer) && inbox.federation.hasTransport(peer) });

const verbs = {
  send: (given) => inbox.router.routeMessage(given),
  message: ({ id }) => inbox.storage.getMessage(id),
  federate: () => inbox.federation.federate({ systemId: peer, url }),
  disconnect: () => inbox.federation.disconnect(peer),
  queued: () => inbox.federation.queue.size(peer),
};
createInterface({ input: process.stdin }).on("line", async (line) => {
  const { what, ...given } = JSON.parse(line);
  try {
    say({ result: (await verbs[what](given)) ?? null });
  } catch (error) {
    say({ error: error.message });
  }
});
