// The draft of a job: what a person typed, the corresponding members of cron.add and cron.update, and the command with the same effect.

import { stamp } from "./ui/text.js";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
export const PRESETS = new Map([["once", "once"], ["hourly", "hourly"], ["daily", "daily"], ["weekdays", "on weekdays"], ["weekly", "weekly"], ["monthly", "on the last day of each month"], ["every", "at a fixed distance"], ["free", "a cron expression"]]);
export const POLICIES = {
  gap: ["run_after", "skip"], fold: ["first", "second", "both"], overlap: ["skip", "concurrent", "buffer_one", "cancel_previous"], missed: ["skip", "fire_once", "fire_all"],
};
export { DAYS };

/** @param {number | string} n */
const two = (n) => String(n).padStart(2, "0");
const here = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

// empty is the draft for a new job.
export const empty = () => ({ name: "", preset: "daily", at: "", time: "09:00", day: "1", every: "60", expr: "0 9 * * *", tz: here(), message: "", agent: "", session: "isolated", deliver: "", gap: "", fold: "", overlap: "", missed: "", window: "", most: "", retries: "", timeout: "", from: "", until: "", runs: "", alert: "" });

// FORMS are the expressions that a preset makes, and how the preset is recognized in them.
/** @type {[preset: string, form: RegExp, read: (m: RegExpExecArray) => Partial<page.Draft>][]} */
const FORMS = [
  ["hourly", /^(\d+) \* \* \* \*$/, (m) => ({ time: `00:${two(m[1])}` })],
  ["daily", /^(\d+) (\d+) \* \* \*$/, (m) => ({ time: `${two(m[2])}:${two(m[1])}` })],
  ["weekdays", /^(\d+) (\d+) \* \* 1-5$/, (m) => ({ time: `${two(m[2])}:${two(m[1])}` })],
  ["weekly", /^(\d+) (\d+) \* \* ([0-6])$/, (m) => ({ time: `${two(m[2])}:${two(m[1])}`, day: m[3] })],
  ["monthly", /^(\d+) (\d+) L \* \*$/, (m) => ({ time: `${two(m[2])}:${two(m[1])}` })],
];

/** @param {page.Draft} d */
const expression = (d) => {
  const [hour, minute] = d.time.split(":").map(Number);
  /** @type {Record<string, string>} */ const forms = { hourly: `${minute} * * * *`, daily: `${minute} ${hour} * * *`, weekdays: `${minute} ${hour} * * 1-5`, weekly: `${minute} ${hour} * * ${d.day}`, monthly: `${minute} ${hour} L * *`, free: d.expr.trim() };
  return forms[d.preset];
};

// wallIn returns the instant of a wall time in a zone. The offset depends on the instant itself, so it is looked up twice.
/** @param {string} wall @param {string} tz */
function wallIn(wall, tz) {
  const utc = Date.parse(`${wall}:00Z`);
  if (Number.isNaN(utc)) return "";
  const offset = (/** @type {number} */ ms) => { const [, sign, h, m] = /([+-])(\d\d):(\d\d)$/.exec(stamp(ms, tz)) ?? ["", "+", "0", "0"]; return (sign === "-" ? -1 : 1) * (Number(h) * 60 + Number(m)) * 60000; };
  const first = utc - offset(utc);
  return stamp(utc - offset(first), tz);
}

// scheduleOf returns the schedule of a draft.
/** @param {page.Draft} d @returns {wire.JobSchedule} */
export function scheduleOf(d) {
  if (d.preset === "once") return { kind: "at", at: wallIn(d.at, d.tz) };
  if (d.preset === "every") return { kind: "every", everyMs: Math.round(Number(d.every) * 60000) };
  return { kind: "cron", expr: expression(d), ...(d.tz ? { tz: d.tz } : {}) };
}

// boundsOf returns the first and the last moment of a draft and its number of fires; an empty field removes a bound.
/** @param {page.Draft} d */
export function boundsOf(d) {
  const tz = d.tz || "UTC", at = (/** @type {string} */ wall) => (wall ? Date.parse(wallIn(wall, tz)) : null);
  return { startsAtMs: at(d.from), endsAtMs: at(d.until), maxRuns: d.runs === "" ? null : Number(d.runs) };
}

/** @param {page.Draft} d */
export const dstOf = (d) => ({ ...(d.gap ? { gap: d.gap } : {}), ...(d.fold ? { overlap: d.fold } : {}) });

/** @param {page.Draft} d */
function deliveryOf(d) {
  const text = d.deliver.trim();
  if (!text) return { mode: "none" };
  if (/^https?:/.test(text)) return { mode: "webhook", to: text };
  const [channel, ...rest] = text.split(":");
  const [to, thread] = channel === "web" ? [rest.join(":")] : rest;
  return { mode: "announce", channel, ...(to ? { to } : {}), ...(thread ? { threadId: thread } : {}) };
}

// draftOf returns the draft of an existing job.
/** @param {wire.Job} j @returns {page.Draft} */
export function draftOf(j) {
  const s = j.schedule, d = { ...empty(), name: j.name, tz: s.tz ?? "", agent: j.agentId ?? "", session: j.sessionTarget, message: j.payload.message ?? j.payload.text ?? "", gap: j.dst?.gap ?? "", fold: j.dst?.overlap ?? "", overlap: j.overlap ?? "", missed: j.missed?.policy ?? "", window: j.missed?.windowSeconds == null ? "" : String(j.missed.windowSeconds / 60), most: String(j.missed?.maxCatchup ?? ""), retries: String(j.retry?.maxRetries ?? ""), timeout: String(j.timeoutSeconds ?? "") };
  const to = j.delivery ?? {};
  d.deliver = to.mode === "webhook" ? to.to ?? "" : to.mode === "announce" ? [to.channel, to.to, to.threadId].filter(Boolean).join(":") : "";
  const zone = s.tz || (s.kind === "at" ? here() : "UTC"), wall = (/** @type {number | undefined} */ ms) => (ms ? stamp(ms, zone).slice(0, 16) : "");
  Object.assign(d, { from: wall(j.startsAtMs), until: wall(j.endsAtMs), runs: String(j.maxRuns ?? ""), alert: j.failureAlert === false ? "0" : String(alertOf(j)?.after ?? "") });
  if (s.kind === "at") return { ...d, preset: "once", tz: zone, at: wall(Date.parse(s.at ?? "") || s.atMs) };
  if (s.kind === "every") return { ...d, preset: "every", every: String((s.everyMs ?? 0) / 60000) };
  const expr = s.expr ?? "";
  for (const [preset, form, read] of FORMS) { const m = form.exec(expr); if (m) return { ...d, preset, expr, ...read(m) }; }
  return { ...d, preset: "free", expr };
}

// missedOf returns the rules for missed slots; the window is in minutes.
/** @param {page.Draft} d */
const missedOf = (d) => ({ ...(d.missed ? { policy: d.missed } : {}), ...(d.window !== "" ? { windowSeconds: Math.round(Number(d.window) * 60) } : {}), ...(d.most !== "" ? { maxCatchup: Number(d.most) } : {}) });

// members returns the members for cron.add. A policy that was not chosen is left to the gateway.
/** @param {page.Draft} d @param {wire.Job["payload"]} [payload] @returns {Record<string, any>} */
export function members(d, payload) {
  const text = payload?.kind === "systemEvent" ? { text: d.message } : { message: d.message };
  return {
    name: d.name.trim(), schedule: scheduleOf(d), sessionTarget: d.session.trim(), payload: { kind: "agentTurn", ...payload, ...text }, delivery: deliveryOf(d),
    ...(d.agent ? { agentId: d.agent } : {}), ...(d.gap || d.fold ? { dst: dstOf(d) } : {}), ...(d.overlap ? { overlap: d.overlap } : {}),
    ...(d.missed || d.window !== "" || d.most !== "" ? { missed: missedOf(d) } : {}), ...(d.retries !== "" ? { retry: { maxRetries: Number(d.retries) } } : {}), ...(d.timeout !== "" ? { timeoutSeconds: Number(d.timeout) } : {}),
    ...boundsOf(d), failureAlert: d.alert === "" ? null : Number(d.alert) === 0 ? false : { after: Number(d.alert) },
  };
}

// patchOf returns the members that differ from the previous draft. An emptied field restores the default. A job without a window has no limit, which is null.
/** @param {page.Draft} before @param {page.Draft} after @param {wire.Job["payload"]} payload @returns {Record<string, any>} */
export function patchOf(before, after, payload) {
  const whole = (/** @type {page.Draft} */ d) => { const m = members(d, payload); return m.missed ? { ...m, missed: { windowSeconds: null, ...m.missed } } : m; };
  const old = whole(before), now = whole(after);
  for (const name of Object.keys(old)) now[name] ??= null;
  return Object.fromEntries(Object.entries(now).filter(([name, v]) => JSON.stringify(v) !== JSON.stringify(old[name])));
}

/** @param {string} text */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);
/** @param {number} ms */
const duration = (ms) => (ms % 60000 ? `${ms / 1000}s` : `${ms / 60000}m`);

// command returns the command line with the effect of Save: for the whole draft, or for a patch of the job id.
/** @param {page.Draft} d @param {string} [id] @param {Record<string, any>} [patch] */
export function command(d, id, patch) {
  const bound = ["startsAtMs", "endsAtMs", "maxRuns"]; // for other members, no flag expresses null
  if (id && patch && (patch.missed?.windowSeconds === null || Object.entries(patch).some(([name, v]) => v === null && !bound.includes(name)))) return `laneway cron edit ${quoted(id)} ${quoted(JSON.stringify(patch))}`;
  const m = patch ?? members(d), flags = /** @type {string[]} */ ([]);
  const flag = (/** @type {string} */ name, /** @type {any} */ value) => { if (value !== undefined && value !== "") flags.push(`--${name} ${quoted(String(value))}`); };
  flag("name", m.name);
  if (m.schedule) {
    flag("at", m.schedule.at);
    if (m.schedule.everyMs) flag("every", duration(m.schedule.everyMs));
    flag("cron", m.schedule.expr);
    flag("tz", m.schedule.tz);
  }
  for (const [name, ms] of [["from", m.startsAtMs], ["until", m.endsAtMs]]) flag(name, ms ? stamp(ms, d.tz || "UTC") : id && ms === null ? "none" : "");
  flag("max-runs", m.maxRuns ?? (id && m.maxRuns === null ? 0 : ""));
  flag("dst-gap", m.dst?.gap);
  flag("dst-overlap", m.dst?.overlap);
  flag("message", m.payload?.message ?? m.payload?.text);
  flag("agent", m.agentId);
  if (id || m.sessionTarget !== "isolated") flag("session", m.sessionTarget);
  if (m.delivery && m.delivery.mode !== "none") flag(m.delivery.mode === "webhook" ? "webhook" : "deliver", d.deliver.trim());
  flag("overlap", m.overlap);
  flag("missed", m.missed?.policy);
  flag("missed-window", m.missed?.windowSeconds === undefined ? "" : `${m.missed.windowSeconds}s`);
  flag("missed-most", m.missed?.maxCatchup);
  flag("retries", m.retry?.maxRetries);
  flag("alert-after", m.failureAlert === false ? 0 : m.failureAlert?.after);
  if (m.timeoutSeconds !== undefined) flag("timeout", `${m.timeoutSeconds}s`);
  return [id ? `laneway cron edit ${quoted(id)}` : "laneway cron add", ...flags].join(" ");
}

// alertOf returns the alert rule of a job, or undefined if it has no rule of its own.
/** @param {wire.Job} j */
const alertOf = (j) => (typeof j.failureAlert === "object" ? j.failureAlert : undefined);

// commandOf returns the command that makes a job like this one.
/** @param {wire.Job} j */
export function commandOf(j) {
  const more = { key: j.keyDerived ? "" : j.key, jitter: j.jitterMs ? `${j.jitterMs}ms` : "", "alert-to": alertOf(j)?.channel ? [alertOf(j)?.channel, alertOf(j)?.to].filter(Boolean).join(":") : "", paused: j.paused?.note ?? "" };
  return [command(draftOf(j)), ...Object.entries(more).filter(([, v]) => v).map(([name, v]) => `--${name} ${quoted(v ?? "")}`)].join(" ");
}

// beyond returns the members of a job for which laneway cron add has no flag.
/** @param {wire.Job} j */
export function beyond(j) {
  const usual = { lane: "cron", atMostOnce: false, wakeMode: "now", description: "", displayName: "" };
  const members = Object.entries(usual).filter(([name, v]) => (/** @type {Record<string, any>} */ (j)[name] ?? v) !== v).map(([name]) => name);
  return [...members, ...(j.missed?.windowSeconds === null && j.schedule.kind !== "at" ? ["missed.windowSeconds"] : []), ...(j.payload.kind === "agentTurn" ? [] : [`the kind ${j.payload.kind}`]), ...Object.keys(j.payload).filter((name) => !["kind", "message"].includes(name)).map((name) => `payload.${name}`)];
}
