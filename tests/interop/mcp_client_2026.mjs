// The second line of the official TypeScript client, held to the revision 2026-07-28, against `postroom mcp`.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [command, ...words] = process.argv.slice(2);
const env = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== undefined));
const options = { versionNegotiation: { mode: { pin: "2026-07-28" } } };
const bob = new Client({ name: "interop", version: "2" }, options);
await bob.connect(new StdioClientTransport({ command, args: [...words, "--as", "bob"], env, stderr: "inherit" }));

const { tools } = await bob.listTools();
assert.equal(tools.length, 10);
let tell;
const told = new Promise((done) => { tell = done; });
bob.setNotificationHandler("notifications/resources/updated", (change) => tell(change.params.uri));
const heard = await bob.listen({ resourceSubscriptions: ["inbox://bob"] });
assert.deepEqual(heard.honoredFilter.resourceSubscriptions, ["inbox://bob"]);

const sent = await bob.callTool({ name: "send_message", arguments: { to: "bob", from: "ann", body: "hello" } });
assert.equal(sent.structuredContent.ok, true);
assert.equal(await told, "inbox://bob");
const found = await bob.callTool({ name: "check_inbox", arguments: {} });
assert.equal(found.structuredContent.messages[0].content.text, "hello");
const wrong = await bob.callTool({ name: "ack", arguments: { messageIds: "nothing" } });
assert.equal(wrong.isError, true);
const inbox = await bob.readResource({ uri: "inbox://bob" });
assert.equal(JSON.parse(inbox.contents[0].text).count, 0);
assert.match((await bob.getPrompt({ name: "triage" })).messages[0].content.text, /no unread letters/);
await heard.close();
await bob.close();
console.log("all told");
