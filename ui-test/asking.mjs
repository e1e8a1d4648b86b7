// An agent with the Agent Client Protocol over standard input and output. It asks before it acts, and answers with the chosen option.

import { createInterface } from "node:readline";

const waiting = new Map();
let next = 1;
const send = (frame) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...frame })}\n`);
const call = (method, params) => new Promise((resolve) => { const id = `q${next++}`; waiting.set(id, resolve); send({ id, method, params }); });
const say = (sessionId, text) => send({ method: "session/update", params: { sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } } });

const OPTIONS = [
  { optionId: "once", name: "Yes", kind: "allow_once" },
  { optionId: "always", name: "always for this command", kind: "allow_always" },
  { optionId: "no", name: "No, and tell the model why", kind: "reject_once" },
];

async function prompt(sessionId, text) {
  const label = text.includes("<img") ? ` ${text}` : ""; // an agent may quote other people anywhere
  const [, file] = /^change (.+)$/.exec(text) ?? [];
  const bug = text.includes("refund bug"); // for the pictures of the documentation
  if (bug) say(sessionId, "The refund was rounded twice. I rounded it once, in billing/refund.go, and all 214 tests pass.");
  const act = bug ? { kind: "execute", rawInput: { command: "git push origin fix/refund-rounding" } } : file ? { kind: "edit", rawInput: { file_path: file, old_string: "one", new_string: "two" } } : { kind: "execute", rawInput: { command: text, timeout: 20 } };
  const { outcome } = await call("session/request_permission", {
    sessionId, options: OPTIONS.map((o) => ({ ...o, name: o.name + label })), toolCall: { toolCallId: "t1", title: `${file ? "Edit" : "Shell"}${label}`, status: "pending", ...act },
  });
  if (outcome.outcome === "cancelled") return "cancelled";
  say(sessionId, `chosen: ${outcome.optionId}`);
  return "end_turn";
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }),
  "session/new": () => ({ sessionId: `s${next++}` }),
  "session/prompt": async (p) => ({ stopReason: await prompt(p.sessionId, p.prompt.filter((c) => c.type === "text").at(-1).text) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const frame = JSON.parse(line);
  if (frame.method === undefined) waiting.get(frame.id)?.(frame.result ?? { outcome: { outcome: "cancelled" } });
  else if (frame.id !== undefined) {
    const method = METHODS[frame.method];
    if (!method) send({ id: frame.id, error: { code: -32601, message: "not offered" } });
    else Promise.resolve(method(frame.params)).then((result) => send({ id: frame.id, result }));
  }
}
