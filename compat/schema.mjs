// node schema.mjs URL ADMIN_TOKEN READ_TOKEN: everything that the gateway sends in the standard view is valid against the published
// definitions, up to the end of the gateway (the process that runs this stops it on request), and every published param is taken. The check `every method was called` keeps a new method from being forgotten.
import { readFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import Ajv from "ajv";
import { check, end, within } from "./report.mjs";
import { Client } from "./socket.mjs";
import { sample } from "./sample.mjs";

const [url, token, readToken] = process.argv.slice(2);
const published = JSON.parse(readFileSync(new URL("node_modules/@openclaw/gateway-protocol/protocol.schema.json", import.meta.url)));
const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema({ $id: "published", definitions: published.definitions });
const validators = new Map();
const validator = (name) => {
  if (!validators.has(name)) validators.set(name, ajv.compile({ $ref: `published#/definitions/${name}` }));
  return validators.get(name);
};

// seen counts what was validated, by definition; faults holds the first fault of each kind.
const seen = new Map();
const faults = new Map();
let lanesSent = false;
function valid(definition, value, where) {
  const is = validator(definition);
  seen.set(definition, (seen.get(definition) ?? 0) + 1);
  if (is(value)) return true;
  const fault = ajv.errorsText(is.errors, { dataVar: definition }).slice(0, 400);
  if (!faults.has(`${where} ${fault}`)) faults.set(`${where} ${fault}`, (JSON.stringify(value) ?? "nothing").slice(0, 600));
  return false;
}

const rows = (list, where) => list.forEach((row) => valid("SessionRow", row, where));
const jobs = (list, where) => list.forEach((job) => valid("CronJob", job, where));
// content says what the payload of a method's answer must be.
const content = {
  connect: (p) => valid("HelloOk", p, "connect") && valid("Snapshot", p.snapshot, "connect"),
  "agents.list": (p) => valid("AgentsListResult", p, "agents.list"),
  "commands.list": (p) => valid("CommandsListResult", p, "commands.list"),
  "channels.status": (p) => valid("ChannelsStatusResult", p, "channels.status"),
  "channels.pairing.list": (p) => valid("ChannelsPairingListResult", p, "channels.pairing.list"),
  "channels.pairing.approve": (p) => valid("ChannelsPairingApproveResult", p, "channels.pairing.approve"),
  "channels.pairing.dismiss": (p) => valid("ChannelsPairingDismissResult", p, "channels.pairing.dismiss"),
  "question.list": (p) => valid("QuestionListResult", p, "question.list"),
  "taskSuggestions.list": (p) => valid("TaskSuggestionsListResult", p, "taskSuggestions.list"),
  "sessions.delete": (p) => valid("SessionsDeleteResult", p, "sessions.delete"),
  "sessions.list": (p) => rows(p.sessions, "sessions.list"),
  "sessions.describe": (p) => p.session && rows([p.session], "sessions.describe"),
  "sessions.subscribe": (p) => p.list && rows(p.list.sessions, "sessions.subscribe"),
  "chat.history": (p, params) => {
    if (p.sessionInfo) rows([p.sessionInfo], "chat.history"); // a reset has none
    if (params?.cursor !== undefined) valid("ChatHistoryCursorResult", p, "chat.history with a cursor");
  },
  "cron.add": (p) => valid("CronAddResult", p, "cron.add"),
  "cron.get": (p) => jobs([p], "cron.get"),
  "cron.update": (p) => jobs([p], "cron.update"),
  "cron.list": (p) => jobs(p.jobs, "cron.list"),
  "cron.runs": (p) => p.entries.forEach((e) => valid("CronRunLogEntry", e, "cron.runs")),
};
const events = {
  tick: (p) => valid("TickEvent", p, "tick"),
  shutdown: (p) => valid("ShutdownEvent", p, "shutdown"),
  chat: (p) => valid("ChatEvent", p, `chat ${p.state}`),
  agent: (p) => valid("AgentEvent", p, `agent ${p.stream}`),
  "sessions.changed": (p) => p.session && rows([p.session], "sessions.changed"),
  cron: (p) => p.job && jobs([p.job], `cron ${p.action}`),
};

function look(frame, call) {
  if (frame.type === "event") {
    valid("EventFrame", frame, `event ${frame.event}`);
    lanesSent ||= frame.event === "lanes";
    events[frame.event]?.(frame.payload);
    return;
  }
  valid("ResponseFrame", frame, `answer to ${call?.method}`);
  if (frame.ok) {
    content[call?.method]?.(frame.payload, call?.params);
    return;
  }
  valid("ErrorShape", frame.error, `error of ${call?.method}`);
  if (frame.error.code === "FORBIDDEN") valid("MissingScopeErrorDetails", frame.error.details, "missing scope");
  if (frame.error.details?.code === "CRON_JOB_NOT_FOUND") valid("CronJobNotFoundErrorDetails", frame.error.details, "job not found");
}

const called = new Set();
const c = new Client(url, look);
const hello = await c.login({ token });
check("connect", hello.ok, hello);
const call = async (method, params, want) => {
  called.add(method);
  return c.call(method, params, want);
};
const good = async (method, params, want) => {
  const answer = await call(method, params, want);
  const last = Array.isArray(answer) ? answer.at(-1) : answer;
  check(`${method} answers`, last.ok === true, last.error);
  return last.payload;
};
const methods = hello.payload.features.methods.filter((m) => m !== "connect");
const sessionKey = `agent:main:schema-${randomUUID()}`;
const send = (message, more = {}) => ({ sessionKey, message, idempotencyKey: randomUUID(), ...more });

await good("sessions.subscribe", {});
await good("sessions.subscribe", { limit: 5 });
await good("sessions.unsubscribe", {});
await good("sessions.subscribe", {});
await good("health", { probe: true });
for (const m of ["status", "lanes.status", "agents.list", "commands.list", "channels.status", "question.list", "plugin.approval.list", "taskSuggestions.list", "needs.list", "questions.list"]) await good(m, {});
const done = (await good("chat.send", send("one two three"))).runId;
await c.chat(done, "final");
const cursor = (await good("chat.history", { sessionKey })).deltaCursor;
await good("agent", send("for two frames"), 2);
const running = (await good("chat.send", send("a long answer that will be stopped before its end, ".repeat(20)))).runId;
const waits = (await good("chat.send", send("waits for the other"))).runId;
await c.chat(running, "delta");
await good("chat.history", { sessionKey, cursor });
await good("chat.history", { sessionKey });
await good("sessions.list", {});
await good("sessions.describe", { key: sessionKey });
await good("sessions.search", { query: "two" });
await good("toc.list", { level: "day" });
await good("tasks.list", {});
await good("runs.list", { state: "ended" });
for (const m of ["tasks.get", "tasks.stop", "runs.get"]) await call(m, { id: "none" });
await call("questions.answer", { id: "none", option: 1 });
for (const m of ["usage.status", "usage.list"]) await good(m, {});
await good("chat.abort", { sessionKey, runId: running });
await c.chat(running, "aborted");
await good("chat.abort", { sessionKey, all: true });
await c.event("the end of the waiting one", (f) => f.event === "chat" && f.payload.runId === waits && ["final", "aborted"].includes(f.payload.state));
const command = (await good("chat.send", send("/help"))).runId;
await c.chat(command, "final");
await good("wake", { mode: "next-heartbeat", text: "for the next turn", sessionKey });
await good("sessions.reset", { key: sessionKey, reason: "reset" });
await good("chat.history", { sessionKey, cursor });
await good("sessions.delete", { key: sessionKey });
await good("sessions.describe", { key: sessionKey });
await call("chat.send", { sessionKey });
await call("chat.send", send("no agent", { sessionKey: "agent:absent:x" }));

if (methods.includes("cron.add")) await cron();
if (methods.includes("scheduler.status")) await good("scheduler.status", {});
if (methods.includes("channels.pairing.list")) {
  await good("channels.pairing.list", {});
  for (const m of ["channels.pairing.approve", "channels.pairing.dismiss"]) await call(m, { channel: "telegram", accountId: "default", requestId: "none" });
  if (methods.includes("channels.pairing.revoke")) await call("channels.pairing.revoke", { channel: "telegram", accountId: "default", senderId: "1" });
}

// cron writes jobs of every kind, changes them and lets them run.
async function cron() {
  const base = { sessionTarget: "isolated", wakeMode: "now", payload: { kind: "agentTurn", message: "hello" } };
  const job = await good("cron.add", { ...base, name: "every", schedule: { kind: "every", everyMs: 3_600_000 } });
  await good("cron.add", { ...base, name: "at", schedule: { kind: "at", at: new Date(Date.now() + 86_400_000).toISOString() }, delivery: { mode: "none" } });
  await good("cron.add", { ...base, name: "cron", declarationKey: "declared", schedule: { kind: "cron", expr: "0 9 * * 1-5", tz: "Europe/Berlin" } });
  await good("cron.add", { name: "event", sessionTarget: "main", wakeMode: "now", payload: { kind: "systemEvent", text: "tick" }, schedule: { kind: "every", everyMs: 3_600_000 } });
  await good("cron.update", { id: job.id, patch: { description: "changed", failureAlert: { after: 2 } } });
  const { runId } = await good("cron.run", { id: job.id, mode: "force" });
  await c.event("the end of the run", (f) => f.event === "cron" && f.payload.action === "finished" && f.payload.runId === runId);
  await good("cron.runs", { id: job.id });
  for (const m of ["cron.get", "cron.preview", "cron.resume"]) await good(m, { id: job.id });
  await good("cron.explain", { id: job.id, at: "9:00" });
  await good("cron.pause", { id: job.id, note: "holidays" });
  await good("cron.list", { includeDisabled: true });
  await good("cron.status", {});
  await good("cron.cancel", { id: job.id });
  await good("cron.backfill", { id: job.id, fromMs: Date.now() - 7_200_000, toMs: Date.now() - 1000, dryRun: true });
  const alias = await good("cron.create", { name: "tea", schedule: { kind: "at", atMs: Date.now() + 3_600_000 }, message: "tea" });
  await good("cron.toggle", { jobId: alias.job.id, enabled: false });
  await good("cron.delete", { jobId: alias.job.id });
  await good("cron.remove", { id: job.id });
  await call("cron.get", { id: "nope" });
}

const reader = new Client(url, look);
await reader.login({ token: readToken });
for (const m of methods) {
  const answer = await reader.call(m, []);
  if (answer.error?.code !== "FORBIDDEN") check(`${m} refuses params that are no object`, answer.error?.message?.startsWith(`invalid ${m} params`), answer);
}

// Every published param: params that are valid against the published definition are taken, or refused for a reason that has a name.
// exceptions are the published params of methods that have a published name and params of their own, each with its reason. They have to be refused: a filter that is
// taken without effect would give what was not asked for.
const exceptions = new Map(Object.entries({
  "sessions.search sessionKeys": "a search is in one session (sessionKey) or in all",
  "tasks.list status": "the list has the tasks that have not ended (open), or all",
  "tasks.list agentId": "the list is of one conversation (sessionKey), or of all",
  "tasks.list cursor": "the list is one page, the newest first",
}));
const definitionOf = (method) => method.split(".").map((p) => p[0].toUpperCase() + p.slice(1)).join("") + "Params";
let tried = 0;
for (const method of methods) {
  const definition = published.definitions[definitionOf(method)];
  const branches = definition?.anyOf ?? [definition]; // each is a set of params of its own
  for (const [shape, name, schema] of branches.flatMap((b) => Object.entries(b?.properties ?? {}).map(([name, schema]) => [b, name, schema]))) {
    const params = { ...sample(shape, published.definitions), [name]: sample(schema, published.definitions) };
    for (const key of ["sessionKey", "key"]) if (key in params) params[key] = `agent:main:params-${randomUUID()}`;
    for (const key of ["idempotencyKey"]) if (key in params) params[key] = randomUUID();
    if (!validator(definitionOf(method))(params)) {
      check(`a valid sample of ${method} ${name}`, false, ajv.errorsText(validator(definitionOf(method)).errors).slice(0, 200));
      continue;
    }
    tried++;
    const answer = await c.call(method, params);
    if (!answer.ok) console.log(`   ${method} with ${name}=${JSON.stringify(params[name])}: ${answer.error.message}`);
    const excepted = exceptions.get(`${method} ${name}`);
    if (excepted) {
      check(`${method} refuses ${name}: ${excepted}`, answer.error?.message?.includes(`unexpected property '${name}'`), answer);
      continue;
    }
    if (!answer.ok && /unexpected property|must be (string|integer|boolean|array)/.test(answer.error.message)) {
      check(`${method} takes ${name}`, false, `${answer.error.message} for ${JSON.stringify(params[name])}`);
    }
  }
}
check(`published params were tried (${tried})`, tried > 50, tried);

check("every method was called", methods.every((m) => called.has(m)), methods.filter((m) => !called.has(m)));
check("lanes is not sent to who does not know it", !lanesSent);

await within(45_000, "a tick", new Promise((done) => c.waiting.push({ want: (f) => f.event === "tick", done })));
console.log("stop the gateway now");
const closed = await within(30_000, "the close of a gateway that stops", c.closed);
const reasons = c.events.filter((f) => f.event === "shutdown").map((f) => f.payload.reason);
check("a stop is announced and closes with 1012", closed.code === 1012 && reasons.join() === "draining,stopped", { closed, reasons });

for (const name of ["TickEvent", "ShutdownEvent", "ResponseFrame", "EventFrame", "HelloOk", "Snapshot", "ErrorShape", "MissingScopeErrorDetails", "AgentsListResult", "ChatEvent", "AgentEvent",
  "ChatHistoryCursorResult", "SessionRow", "SessionsDeleteResult", "CommandsListResult", "ChannelsStatusResult", "QuestionListResult", "TaskSuggestionsListResult",
  "CronJob", "CronAddResult", "CronRunLogEntry", "CronJobNotFoundErrorDetails"]) {
  check(`${name} was validated ${seen.get(name) ?? 0} times`, (seen.get(name) ?? 0) > 0);
}
for (const [fault, value] of faults) check(fault, false, value);
check(`${[...seen.values()].reduce((a, b) => a + b, 0)} values are valid`, faults.size === 0, `${faults.size} kinds of faults`);
end();
