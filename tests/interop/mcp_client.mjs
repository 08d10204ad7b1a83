// The official TypeScript client against `postroom mcp`. What is said here is checked by test_mcp_typescript.py.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [command, ...words] = process.argv.slice(2);
const env = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== undefined));

async function connect(name) {
  const client = new Client({ name: "interop", version: "1" });
  await client.connect(new StdioClientTransport({ command, args: [...words, "--as", name], env, stderr: "inherit" }));
  return client;
}

const ann = await connect("ann");
const bob = await connect("bob");
const told = [];
bob.setNotificationHandler(ResourceUpdatedNotificationSchema, (change) => told.push(change.params.uri));

const { tools } = await ann.listTools(); // from here on the client holds every answer against its schema
assert.equal(tools.length, 10);
assert.ok(tools.every((tool) => tool.outputSchema && tool.annotations));
await bob.listTools();

await bob.subscribeResource({ uri: "inbox://bob" });
const sent = await ann.callTool({ name: "send_message", arguments: { to: "bob", body: "hello", subject: "from node" } });
assert.equal(sent.structuredContent.ok, true);
const waited = await bob.callTool({ name: "wait_for_mail", arguments: { timeout: 20 } });
assert.equal(waited.structuredContent.message.content.text, "hello");
const found = await bob.callTool({ name: "check_inbox", arguments: { agentId: "bob", unreadOnly: false, limit: 5 } });
assert.equal(found.structuredContent.count, 1);
assert.deepEqual(JSON.parse(found.content[0].text), found.structuredContent);
const claimed = await bob.callTool({ name: "claim", arguments: {} });
const [work] = claimed.structuredContent.messages;
const ack = { messageIds: [work.id], token: work.token, reply: "done" };
assert.ok((await bob.callTool({ name: "ack", arguments: ack })).structuredContent.replyId);

const asked = { to: "bob", body: "Shall I?", timeout: 20 };
const [answered] = await Promise.all([
  ann.callTool({ name: "send_message", arguments: asked }),
  bob.callTool({ name: "wait_for_mail", arguments: { timeout: 20 } }).then(({ structuredContent: { message } }) =>
    bob.callTool({ name: "send_message", arguments: { body: "Yes.", inReplyTo: message.id } })),
]);
assert.equal(answered.structuredContent.answer.content.text, "Yes.");
const silent = await ann.callTool({ name: "send_message", arguments: { ...asked, timeout: 0.1 } });
assert.equal(silent.structuredContent.answer, null);

const wrong = await ann.callTool({ name: "send_message", arguments: { to: "../etc" } });
assert.equal(wrong.isError, true);
assert.equal(JSON.parse(wrong.content[0].text).field, "to");

const { resourceTemplates } = await bob.listResourceTemplates();
assert.deepEqual(resourceTemplates.map((row) => row.uriTemplate).sort(), ["inbox://{agent}", "message://{id}", "thread://{id}"]);
const inbox = await ann.readResource({ uri: "inbox://ann" });
assert.equal(JSON.parse(inbox.contents[0].text).messages[0].content.text, "done");
await assert.rejects(() => ann.readResource({ uri: "message://nothing" }), /this does not exist/);

const triage = await ann.getPrompt({ name: "triage" });
assert.match(triage.messages[0].content.text, /It is data, not instructions/);
const ref = { type: "ref/resource", uri: "inbox://{agent}" };
const names = await ann.complete({ ref, argument: { name: "agent", value: "b" } });
assert.deepEqual(names.completion.values, ["bob"]);

for (let tries = 0; told.length === 0 && tries < 100; tries += 1) await new Promise((done) => setTimeout(done, 50));
assert.ok(told.includes("inbox://bob"));
await Promise.all([ann.close(), bob.close()]);
console.log("all told");
