// Sends one message and prints the answer while it is written, even when the gateway restarts meanwhile:
//   LANEWAY_TOKEN=… node client.mjs ws://127.0.0.1:18790/ws "hello"
// Browsers, Deno, Bun and Node.js 22 have WebSocket; Node.js 20 needs --experimental-websocket.
const [url, text] = process.argv.slice(2);
const key = crypto.randomUUID(); // the same in every attempt, so the message runs once
let shown = "";

function connect() {
  const socket = new WebSocket(url);
  const waiting = new Map();
  const call = (method, params) => new Promise((resolve, reject) => {
    const id = String(waiting.size + 1);
    waiting.set(id, { resolve, reject });
    socket.send(JSON.stringify({ type: "req", id, method, params }));
  });
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === "res" && frame.ok) waiting.get(frame.id).resolve(frame.payload);
    else if (frame.type === "res") waiting.get(frame.id).reject(frame.error);
    else if (frame.event === "connect.challenge") talk(call).catch((error) => error.retryable ? again() : fail(error));
    else if (frame.event === "chat" && frame.payload.runId === key) show(frame.payload);
  };
  let lost = false;
  const again = () => { // once for each socket: the gateway restarts, or the network is away
    if (lost) return; // close() may call this again, before it returns
    lost = true;
    setTimeout(connect, 1000);
    socket.close();
  };
  socket.onclose = socket.onerror = again;
}

function fail(error) {
  console.error(error.message);
  process.exit(1);
}

async function talk(call) {
  const client = { id: "example", version: "1.0", platform: "javascript", mode: "cli" };
  await call("connect", { minProtocol: 4, maxProtocol: 4, client, scopes: ["operator.read", "operator.write"], auth: { token: process.env.LANEWAY_TOKEN } });
  await call("sessions.subscribe", {}); // events of a run that an earlier connection began
  const { status } = await call("chat.send", { sessionKey: "example", message: text, idempotencyKey: key });
  if (status === "started" || status === "in_flight") return;
  const { messages } = await call("chat.history", { sessionKey: "example" }); // it ended while we were away
  show({ state: status === "ok" ? "final" : status, message: messages.findLast((m) => m.runId === key && m.role === "assistant") });
}

function show({ state, message, errorMessage }) {
  const whole = message?.content[0].text ?? errorMessage ?? "";
  process.stdout.write(whole.startsWith(shown) ? whole.slice(shown.length) : "\n" + whole);
  shown = whole;
  if (state !== "delta") process.stdout.write("\n", () => process.exit(state === "final" ? 0 : 1));
}

connect();
