// A client in TypeScript over WebSocket: send a letter, wait for the answer, acknowledge it. It needs nothing but
// Node 22, which has a WebSocket and runs TypeScript.
//
//     postroom serve                                    # in one terminal
//     export TOKEN=$(postroom tokens create --agent web | head -n 1)
//     node --experimental-strip-types examples/client.ts ws://127.0.0.1:4650/ws

interface Letter {
  id: string;
  sender: string;
  text: string;
}

interface Reply {
  id: number;
  result?: unknown;
  error?: { code: number; message: string };
}

/** JSON-RPC over one WebSocket. Replies come in the order of the calls. */
class Postroom {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, { resolve: (value: any) => void; reject: (reason: Error) => void }>();
  #number = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", (event) => this.#settle(JSON.parse(String(event.data))));
    socket.addEventListener("close", () => {
      for (const call of this.#waiting.values()) call.reject(new Error("the connection was closed"));
    });
  }

  static open(url: string, token: string): Promise<Postroom> {
    // The token stands in a header, never in the address. Node's WebSocket takes headers; a browser's does not.
    const options = { headers: { Authorization: `Bearer ${token}` } };
    const socket = new (WebSocket as any)(url, options) as WebSocket;
    return new Promise((resolve, reject) => {
      socket.addEventListener("open", () => resolve(new Postroom(socket)));
      socket.addEventListener("error", () => reject(new Error(`cannot connect to ${url}`)));
    });
  }

  call<Result>(method: string, params: object): Promise<Result> {
    const id = ++this.#number;
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  close(): void {
    this.#socket.close();
  }

  #settle(reply: Reply): void {
    const call = this.#waiting.get(reply.id);
    if (!call) return;
    this.#waiting.delete(reply.id);
    if (reply.error) call.reject(new Error(reply.error.message));
    else call.resolve(reply.result);
  }
}

const [url = "ws://127.0.0.1:4650/ws", to = "researcher"] = process.argv.slice(2);
const room = await Postroom.open(url, process.env.TOKEN ?? "");

const sent = await room.call<{ id: string; thread: string }>("mail/send", {
  to,
  body: "Which sort is stable?",
  kind: "request",
});
console.log(`sent ${sent.id} to ${to}`);

const { letter } = await room.call<{ letter: Letter | null }>("mail/wait", { thread: sent.thread, timeout: 30 });
if (letter) {
  console.log(`${letter.sender}: ${letter.text}`);
  await room.call("mail/ack", { ids: [letter.id] });
} else {
  console.log("no answer came within 30 seconds");
}
room.close();
