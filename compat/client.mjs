// node client.mjs URL TOKEN: the npm package ws connects, chats, is cut off in the middle of an answer, and catches up.
// The agent echoes slowly, a few characters at a time.
import { randomUUID } from "node:crypto";
import { check, end } from "./report.mjs";
import { Client, text } from "./socket.mjs";

const [url, token] = process.argv.slice(2);
const sessionKey = `agent:main:ws-${randomUUID()}`;
const send = (c, message, idempotencyKey = randomUUID()) => c.call("chat.send", { sessionKey, message, idempotencyKey });

const first = new Client(url);
const hello = await first.login({ token });
check("connect", hello.ok && hello.payload.type === "hello-ok" && hello.payload.protocol === 4, hello);
check("the challenge came first and without a number", first.events[0]?.event === "connect.challenge" && first.events[0].seq === undefined, first.events[0]);
check("no extension was negotiated", first.ws.extensions === "", first.ws.extensions);

const run = (await send(first, "one two three")).payload.runId;
const final = await first.chat(run, "final");
check("the answer is the echo", text(final.payload.message) === "one two three", final);
const deltas = first.events.filter((f) => f.event === "chat" && f.payload.runId === run && f.payload.state === "delta");
check("it was streamed", deltas.length > 1 && deltas.map((f) => f.payload.deltaText).join("") === "one two three", deltas.map((f) => f.payload.deltaText));
const numbers = first.events.filter((f) => f.seq !== undefined).map((f) => f.seq);
check("events are numbered without a gap", numbers.every((n, i) => n === i + 1), numbers);

const history = await first.call("chat.history", { sessionKey });
const cursor = history.payload?.deltaCursor;
check("history has both messages", history.payload?.messages?.map((m) => m.role).join() === "user,assistant", history);

const cut = (await send(first, "a long answer that is cut off in its middle")).payload.runId;
await first.chat(cut, "delta");
first.ws.terminate();
await first.closed;

const second = new Client(url);
await second.login({ token });
await second.call("sessions.subscribe", {});
const messages = [];
let at = cursor;
let inFlight;
for (;;) {
  const page = (await second.call("chat.history", { sessionKey, cursor: at })).payload;
  check("a page after the cursor", page.kind === "delta", page);
  messages.push(...page.messages);
  at = page.deltaCursor;
  inFlight ??= page.inFlightRun;
  if (messages.some((m) => m.role === "assistant")) break;
  await second.chat(cut, "final");
}
check("the run was under way when the client came back", inFlight?.runId === cut, inFlight);
check("every message once", messages.map((m) => `${m.role} ${text(m)}`).join() ===
  "user a long answer that is cut off in its middle,assistant a long answer that is cut off in its middle", messages);
check("nothing is left after that", (await second.call("chat.history", { sessionKey, cursor: at })).payload.messages.length === 0);
const again = await send(second, "one two three", run);
check("the same key does nothing again", again.ok && again.payload.runId === run && again.payload.status === "ok", again);
const closed = await second.close();
check("the close is answered", closed.code === 1000 || closed.code === 1005, closed);
end();
