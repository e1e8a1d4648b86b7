// The jobs that the page shows: one page of the list, or one job with its history. The gateway sorts, filters and counts; events update the visible rows.

import { Resource, call, list, listeners, may, me, route } from "./store.js";
import { signal } from "./ui/html.js";

export const PAGE = 100; // rows of the list
export const STRIP = 14; // outcomes of a row
const RUNS = 20; // entries of a job's history, and how many more on demand
const READ = 2000; // ms between two reads of the list
const RATE = 10; // characters per ms: the bandwidth that rereading the list may use
export const ORDERS = /** @type {const} */ ({ next: ["nextRunAtMs", "asc"], name: ["name", "asc"], last: ["lastRunAtMs", "desc"], failing: ["failing", "desc"] });
export const SORTS = /** @type {(keyof typeof ORDERS)[]} */ (Object.keys(ORDERS));
export const CONDITIONS = /** @type {const} */ (["failing", "running", "late", "paused", "invalid", "all"]);

// asked returns the list that the address names.
/** @returns {page.Jobs["asked"]} */
export function asked() {
  const q = route.value.query;
  /** @template {string} T @param {string} name @param {readonly T[]} known */
  const one = (name, known) => known.find((k) => k === q.get(name)) ?? known[0];
  return { sort: one("sort", SORTS), only: one("only", ["all", ...CONDITIONS]), find: q.get("find") ?? "", after: q.get("after") ?? "" };
}

// addressOf returns the address of such a list; another filter or order starts at the first page.
/** @param {Partial<page.Jobs["asked"]>} change */
export function addressOf(change) {
  const a = { ...asked(), after: "", ...change }, q = new URLSearchParams();
  if (a.sort !== SORTS[0]) q.set("sort", a.sort);
  if (a.only !== "all") q.set("only", a.only);
  if (a.find) q.set("find", a.find);
  if (a.after) q.set("after", a.after);
  return `#/jobs${q.size > 0 ? `?${q}` : ""}`;
}

// params returns the params of the list: the words agent:… and target:… of the field are filters.
/** @param {page.Jobs["asked"]} a @returns {wire.Calls["cron.list"]["params"]} */
function params(a) {
  const words = a.find.split(/\s+/).filter(Boolean), filter = (/** @type {string} */ name) => words.findLast((w) => w.startsWith(`${name}:`))?.slice(name.length + 1);
  const query = words.filter((w) => !/^(agent|target):/.test(w)).join(" ");
  const [sortBy, sortDir] = ORDERS[a.sort];
  const rest = { query, agentId: filter("agent"), target: filter("target"), cursor: a.after };
  return { ...VIEW, includeDisabled: true, counts: true, limit: PAGE, sortBy, sortDir, condition: /** @type {(typeof CONDITIONS)[number]} */ (a.only), ...Object.fromEntries(Object.entries(rest).filter(([, v]) => v)) };
}

const VIEW = { brief: true, outcomes: STRIP };

/** @type {Map<string, page.Signal<wire.Job>>} */
let rows = new Map();
/** @param {string} id */
export const rowOf = (id) => rows.get(id);

// held reports whether the pointer or the focus is in the list, so that its rows must stay where they are.
let held = () => false;
/** @param {() => boolean} fn */
export const hold = (fn) => { held = fn; };

let next = 0; // when the list may be read again after an event

/** @type {Resource<page.Jobs>} */
export const page = new Resource(async () => {
  const a = asked(), before = page.data.value;
  const got = await call("cron.list", params(a));
  const ids = new Set(got.jobs.map((j) => j.id));
  const same = before && JSON.stringify(before.asked) === JSON.stringify(a);
  const left = before && same && held() ? before.ids.filter((id) => !ids.has(id)) : []; // jobs that left the page stay while the list is held
  const others = left.length > 0 ? (await call("cron.list", { ...VIEW, ids: left, limit: PAGE })).jobs : [];
  const jobs = [...got.jobs, ...others], kept = new Map();
  for (const j of jobs) {
    const row = rows.get(j.id) ?? signal(j);
    row.value = j;
    kept.set(j.id, row);
  }
  rows = kept;
  next = Date.now() + Math.max(READ, JSON.stringify(got).length / RATE);
  return { asked: a, ids: jobs.map((j) => j.id), counts: got.counts, total: got.total, next: got.nextCursor ?? "" };
});

export const one = new Resource(async () => {
  const [id] = route.value.rest;
  return { id, job: (await call("cron.list", { ids: [id], includeSystem: true, limit: 1, outcomes: STRIP })).jobs[0] };
});

// The kinds of changes in the audit log, in words.
/** @type {Record<string, string>} */
const VERBS = {
  "cron.add": "made", "cron.create": "made", "cron.update": "edited", "cron.pause": "paused", "cron.resume": "resumed", "cron.toggle": "switched", "cron.remove": "removed", "cron.delete": "removed",
  "cron.run": "run by hand", "cron.cancel": "stopped by hand", "cron.backfill": "backfilled",
};
/** @param {{verb: string}} change */
export const verb = (change) => VERBS[change.verb] ?? change.verb;

/** @param {wire.LedgerEntry} r */
export const slotOf = (r) => r.scheduledForMs ?? r.runAtMs ?? r.ts;
export const wanted = signal(RUNS); // entries of the history
export const showMore = () => { wanted.value += RUNS; history.refresh(); };
export const history = new Resource(async () => {
  const [id] = route.value.rest;
  const [entries, { changes = [] }] = await Promise.all([
    list("cron.runs", "entries", { id, includeActive: true }, wanted.value + 1), call("cron.runs", { id, limit: 1, changes: true }),
  ]);
  const more = entries.length > wanted.value, shown = entries.slice(0, wanted.value), oldest = more ? slotOf(shown[shown.length - 1]) : 0;
  const run = route.value.query.get("run");
  if (run && !shown.some((r) => r.runId === run)) shown.push(...(await call("cron.runs", { id, runId: run, includeActive: true })).entries);
  return { id, entries: shown, changes: changes.filter((c) => c.ts >= oldest), more };
});

listeners.add((name, ev) => {
  if (name !== "cron") return;
  const row = rows.get(ev.jobId);
  if (row) row.value = after(row.value, ev);
  page.readLater(Math.max(300, next - Date.now()));
  if (ev.jobId === route.value.rest[0] || ev.action === "many") { one.readLater(); history.readLater(); }
});

// after returns a job with the change of an event.
/** @param {wire.Job} j @param {wire.CronEvent} ev @returns {wire.Job} */
function after(j, ev) {
  const state = { ...j.state }, changed = { ...j, state };
  if (ev.nextRunAtMs && ev.action !== "scheduled") changed.nextRunAtMs = ev.nextRunAtMs;
  if (ev.action === "started") state.runningAtMs = ev.runAtMs;
  if (ev.action === "scheduled") delete state.runningAtMs;
  if (ev.action !== "finished" || j.outcomes?.some((o) => o.slotMs === ev.scheduledForMs)) return changed;
  changed.outcomes = [/** @type {wire.JobOutcome} */ ({ outcome: ev.outcome, slotMs: ev.scheduledForMs, durationMs: ev.durationMs, reason: ev.reason }), ...(j.outcomes ?? [])].slice(0, STRIP);
  if (!ev.runAtMs) return changed;
  delete state.runningAtMs;
  changed.lastRunAtMs = ev.runAtMs;
  state.lastErrorReason = ev.errorReason;
  if (ev.outcome === "ok") state.consecutiveErrors = 0;
  if (["error", "interrupted"].includes(ev.outcome ?? "")) state.consecutiveErrors = (state.consecutiveErrors ?? 0) + 1;
  return changed;
}

const key = () => crypto.randomUUID?.() ?? `w-${Date.now()}-${Math.random().toString(36).slice(2)}`;

// The last action that can be undone.
export const done = signal(/** @type {page.Undo | null} */ (null));
const UNDO = 10000;
/** @param {string} text @param {() => Promise<void>} back */
export const offer = (text, back) => { done.value = { text, until: Date.now() + UNDO, back: async () => { done.value = null; await back(); } }; };

// change calls a method about a job and reads the visible state again.
/** @template {page.Method} M @param {M} method @param {page.Given<M>} given */
async function change(method, ...given) {
  const answer = await call(method, ...given);
  await Promise.all([page, one, history].map((r) => r.refresh()));
  return answer;
}

// canEdit reports whether the form has every member of such a job. Jobs that start programs are changed on the command line.
/** @param {wire.Job} j */
export const canEdit = (j) => may("admin") && ["agentTurn", "systemEvent"].includes(j.payload?.kind);

// isActive reports whether a run of the job runs or waits.
/** @param {wire.Job} j */
export const isActive = (j) => Boolean(j.state?.runningAtMs) || (j.queuedRuns ?? 0) > 0;

// backfill runs one past slot; a dry run only returns whether the slot has a run already.
/** @param {wire.Job} j @param {number} slot @param {boolean} [dryRun] */
export async function backfill(j, slot, dryRun = false) {
  const window = { id: j.id, fromMs: slot, toMs: slot + 1 };
  return dryRun ? call("cron.backfill", { ...window, dryRun }) : change("cron.backfill", { ...window, idempotencyKey: key() });
}

/** @param {wire.Job} j */
export const named = (j) => j.displayName || j.name;

/** @param {wire.Job} j */
export async function run(j) {
  done.value = null;
  const { reason } = await change("cron.run", { id: j.id, mode: "force", idempotencyKey: key() });
  if (reason) throw new Error(reason === "already-running" ? `${named(j)} was not run: a run is active, and its policy allows no second one. Stop that run first.` : `${named(j)} was not run: ${reason}.`);
}

// create makes a job, and edit changes a job that was read before; both return the job.
/** @param {wire.Calls["cron.add"]["params"]} members */
export async function create(members) {
  done.value = null;
  return change("cron.add", { ...members, ifNameExists: "refuse", extended: true, idempotencyKey: key() });
}

/** @param {wire.Job} j @param {object} patch */
export async function edit(j, patch) {
  done.value = null;
  return change("cron.update", { id: j.id, patch, expectedConfigRevision: j.configRevision, extended: true });
}

/** @param {wire.Job} j */
export const stop = (j) => change("cron.cancel", { id: j.id, reason: "stopped in the dashboard", idempotencyKey: key() });

/** @param {wire.Job} j @param {string} note @param {number} [until] */
export async function pause(j, note, until) {
  await change("cron.pause", { id: j.id, note, ...(until ? { untilMs: until } : {}) });
  offer(`Paused ${named(j)}.`, () => resume(j));
}

// resume ends a pause, enables a job that failures have switched off, or ends the holding back of answers.
/** @param {wire.Job} j */
export async function resume(j) {
  const was = j.paused;
  await (j.enabled || was || j.state.autoDisabled ? change("cron.resume", { id: j.id }) : change("cron.toggle", { jobId: j.id, enabled: true }));
  if (was && (!was.untilMs || was.untilMs > Date.now())) offer(`Resumed ${named(j)}.`, () => pause(j, was.note || "paused again", was.untilMs ?? 0));
}

// PORTABLE are the members with which a job can be made again.
const PORTABLE = /** @type {const} */ ([
  "name", "displayName", "description", "agentId", "schedule", "dst", "sessionTarget", "payload", "delivery", "deleteAfterRun", "wakeMode", "failureAlert", "overlap", "missed", "jitterMs", "retry",
  "timeoutSeconds", "lane", "pauseAfterFailures", "atMostOnce", "startsAtMs", "endsAtMs", "maxRuns",
]);

// remove deletes a job that was read with all members. Undo restores the job with its history, but only for the same owner.
/** @param {wire.Job} j */
export async function remove(j) {
  await change("cron.remove", { id: j.id });
  done.value = null;
  if (j.invalid || j.principal !== me.value?.name) return;
  const again = Object.fromEntries(PORTABLE.filter((name) => j[name] !== undefined).map((name) => [name, j[name]]));
  const { enabled, ...pause } = j.paused ?? { enabled: j.enabled };
  offer(`Deleted ${named(j)}.`, async () => {
    const back = await change("cron.add", { .../** @type {Required<Pick<wire.Job, "name" | "schedule" | "sessionTarget" | "payload">>} */ (again), enabled, ...(j.paused ? { paused: { ...pause, enabled } } : {}), ...(j.keyDerived ? {} : { key: j.key }), formerId: j.id, ifNameExists: "new", extended: true, idempotencyKey: key() });
    if (route.value.rest[0] === j.id) location.hash = `#/jobs/${encodeURIComponent(("job" in back ? back.job : back).id)}`;
  });
}
