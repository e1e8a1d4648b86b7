// Overview: what needs attention, what runs and what waits, lanes, channels, replicas.

import { call, channels, lanes, may, me, needs, now, questions, route, runs, runsLimit, status } from "../store.js";
import { html, useEffect } from "../ui/html.js";
import { Act, Loading, Mark, Table } from "../ui/parts.js";
import { ago, clock, plain, span } from "../ui/text.js";
import { address } from "./messages.js";
import { Answers } from "./questions.js";
import { addressOf } from "./why.js";

const ORDER = ["main", "subagent", "team", "cron"];
const SLOW = 10000; // an entry that has waited for longer needs attention

export function Overview() {
  useEffect(() => {
    const ends = [status, lanes, channels, runs, questions].map((r) => r.use());
    return () => ends.forEach((end) => end());
  }, []);
  return html`<${Needs}/><${Loading} of=${status} what="the state of the gateway"/><${Figures}/>
    <section aria-labelledby="lanes"><h2 id="lanes">Lanes${replicas().length > 1 ? ` of ${nameOf(status.data.value?.nodeId)}` : ""}</h2><${Lanes}/></section>
    <section aria-labelledby="runs"><${Runs}/></section>
    <div class="pair"><section aria-labelledby="channels"><h2 id="channels">Channels</h2><${Channels}/></section>
      <section aria-labelledby="replicas"><h2 id="replicas">Replicas</h2><${Replicas}/></section></div>`;
}

const replicas = () => status.data.value?.nodes ?? [];
/** @param {string} [id] */
const nameOf = (id) => plain(replicas().find((n) => n.nodeId === id)?.name ?? id);

// The next step of a need, on this page or on another one.
/** @type {{[kind: string]: (n: wire.Need) => [href: string, word: string]}} */
const STEPS = {
  pairing: () => ["#/people", "Decide"], lane: (n) => [laneAddress(n.lane), "Who holds it"], missed: (n) => [addressOf(n.jobId ?? "", ""), "Why"],
  dead: (n) => [address(n.sessionKey ?? ""), "Open"], session: (n) => [address(n.sessionKey ?? ""), "Open"], question: (n) => [address(n.sessionKey ?? ""), "Open"],
};
const LEVELS = { error: "error", warn: "warn", ask: "waiting", hint: "planned" };
/** @param {string} [lane] */
const laneAddress = (lane = "") => `#/overview?lane=${encodeURIComponent(lane)}`;

function Needs() {
  const list = needs.data.value?.needs;
  if (!list) return null;
  const calm = list.every((n) => n.level === "hint") && html`<p class="calm"><${Mark} kind="ok">Nothing needs you.<//></p>`;
  if (list.length === 0) return calm;
  return html`${calm}<section class=${`needs ${list[0].level}`} aria-labelledby="needs"><h2 id="needs">${calm ? "Next step" : "Needs you"}</h2>
    <ul>${list.map((n) => html`<${Need} key=${[n.kind, n.jobId, n.runId, n.lane, n.requestId, n.text].join(" ")} n=${n}/>`)}</ul></section>`;
}

/** @param {{n: wire.Need}} props */
function Need({ n }) {
  const asked = n.questionId && questions.data.value?.find((q) => q.id === n.questionId);
  const [href, word] = STEPS[n.kind]?.(n) ?? (n.jobId ? [addressOf(n.jobId), "Runs"] : []);
  return html`<li><${Mark} kind=${LEVELS[n.level]}>${plain(n.text)}<//>${" "}
    <span class="quiet">${n.sinceMs ? `${ago(n.sinceMs, now.value)}. ` : ""}${plain(n.next)}${n.command && !href ? html` <code>${plain(n.command)}</code>` : ""}</span>
    ${href && html` <a class="target" href=${href}>${word}</a>`}${asked && html`<${Answers} q=${asked}/>`}</li>`;
}

/** @type {Record<string, string>} */
const RUN_MARKS = { running: "running", yielded: "running", stopping: "cancelled", waiting: "waiting" };

/** @param {wire.Run} r */
function runMark(r) {
  const kind = r.waitingFor?.cause === "retry" ? "retrying" : RUN_MARKS[r.state] ?? "planned";
  return html`<${Mark} kind=${kind}>${r.state === "yielded" ? "running" : r.state}<//>`;
}

// stop ends one run or removes one waiting message; a run between two attempts ends with its job's run.
/** @param {wire.Run} r */
const stop = async (r) => {
  if (r.waitingFor?.cause === "retry") await call("cron.cancel", { runId: r.id });
  else await call("chat.abort", { sessionKey: r.sessionKey, runId: r.runId });
  await runs.refresh();
};

function Runs() {
  const lane = route.value.page === "overview" ? route.value.query.get("lane") : "";
  const all = runs.data.value;
  const shown = (all ?? []).filter((r) => !lane || r.lane === lane);
  const waiting = shown.filter((r) => r.state === "waiting").length;
  const rows = shown.map((r) => ({
    id: r.id, cells: [
      runMark(r), html`<a class="ellipsis target" href=${address(r.sessionKey)} title=${plain(r.sessionKey)}>${plain(r.text) || plain(r.sessionKey)}</a>`,
      html`<span class="ellipsis quiet" title=${plain(r.sessionKey)}>${plain(r.kind === "cron" && r.jobId ? `job ${r.jobId}` : r.sessionKey)}</span>${r.nodeId && replicas().length > 1 && html` <span class="quiet">on ${nameOf(r.nodeId)}</span>`}`, plain(r.lane),
      span(Math.max(0, now.value - (r.startedAt || r.acceptedAt))), r.waitingFor ? `${plain(r.waitingFor.text)}${r.waitingFor.untilMs ? `, ${span(Math.max(0, r.waitingFor.untilMs - now.value))} left` : ""}` : html`<span class="quiet">–</span>`,
    ],
    acts: may("write") && r.state !== "stopping" ? html`<${Act} run=${() => stop(r)} aria-label=${`${r.state === "waiting" ? "Cancel" : "Stop"} ${plain(r.text)}`}>${r.state === "waiting" ? "Cancel" : "Stop"}<//>` : "",
  }));
  return html`<div class="title"><h2 id="runs">Now</h2> <span class="quiet">${shown.length - waiting} running, ${waiting} waiting${(all?.length ?? 0) >= runsLimit ? `, the first ${runsLimit} are shown` : ""}</span>
    ${lane && html`<span>lane ${plain(lane)}</span> <a class="target" href="#/overview">All lanes</a>`}</div>
    <${Loading} of=${runs} what="the runs"/>
    ${all && html`<${Table} label="Now" heads=${["State", "Message", "Where", "Lane", "For", "Waits for"]} rows=${rows} empty=${lane ? `Nothing runs or waits in lane ${plain(lane)}.` : html`Nothing runs or waits. <a class="try" href=${address(me.value?.mainKey ?? "")}>Try a message</a>`}/>`}`;
}

function Figures() {
  const s = status.data.value;
  if (!s) return null;
  const cron = s.cron ?? {};
  const left = cron.nextWakeAtMs ? Math.max(0, cron.nextWakeAtMs - now.value) : 0;
  const figures = [
    ["Running", s.sessions.running, `${s.sessions.waiting} waiting`], ["Sessions", s.sessions.known, `${s.agents} ${s.agents === 1 ? "agent" : "agents"}`],
    cron.enabled ? ["Jobs", cron.jobs, `${cron.backlog} due${cron.oldestDueMs ? `, oldest ${span(cron.oldestDueMs)}` : ""}`] : ["Jobs", "off", "no scheduler here"],
    ["Next fire", cron.nextWakeAtMs ? span(left) : "–", cron.nextWakeAtMs ? clock(cron.nextWakeAtMs) : "nothing is planned"],
    ["Connections", s.clients, `up ${span(s.uptimeMs)}`],
  ];
  return html`<dl class="figures">${figures.map(([label, value, note]) => html`<div key=${label}><dt>${label}</dt><dd><strong>${value}</strong> <span class="quiet">${note}</span></dd></div>`)}</dl>`;
}

/** @param {{used: number, all: number}} props */
function Bar({ used, all }) {
  return html`<svg class="slots" role="img" aria-label=${`${used} of ${all} slots used`}><rect height="10" width=${`${all > 0 ? Math.min(100, (100 * used) / all) : 0}%`}/></svg>`;
}

function Lanes() {
  const place = (/** @type {wire.Lane} */ l) => (ORDER.includes(l.name) ? ORDER.indexOf(l.name) : ORDER.length);
  const rows = (lanes.data.value ?? []).toSorted((a, b) => place(a) - place(b)).map((l) => ({
    id: l.name,
    cells: [html`<a class="target" href=${laneAddress(l.name)}><strong>${plain(l.name)}</strong></a>`, html`<${Bar} used=${l.active} all=${l.capacity}/>`, `${l.active} of ${l.capacity}${l.stopping ? `, ${l.stopping} stopping` : ""}`,
      l.waiting ? html`<${Mark} kind=${l.oldestWaitMs > SLOW ? "warn" : "waiting"}>${l.waiting}, oldest ${span(l.oldestWaitMs)}<//>` : html`<span class="quiet">0</span>`,
      html`<span class="quiet">${l.finished} done${l.failed ? `, ${l.failed} failed` : ""}${l.cancelled ? `, ${l.cancelled} stopped` : ""}</span>`],
  }));
  return html`<${Table} label="Lanes" heads=${["Lane", "Slots", "Running", "Waiting", "Since start"]} rows=${rows} empty="Reading the lanes …"/>`;
}

function Channels() {
  const c = channels.data.value;
  const rows = !c ? [] : c.channelOrder.flatMap((id) => (c.channelAccounts[id] ?? []).map((a) => {
    const state = a.connected ? html`<${Mark} kind="ok">connected<//>` : a.running ? html`<${Mark} kind="error">not connected<//>` : html`<${Mark} kind="planned">${a.enabled ? "stopped" : "off"}<//>`;
    const note = id === "web" ? `${/** @type {wire.WebSummary} */ (c.channels.web).connections} open` : plain(a.lastError) || (a.lastPollAgeMs === null ? "" : `polled ${ago(channels.at.value - a.lastPollAgeMs, now.value)}`);
    const out = a.outboxFailed ? html`<${Mark} kind="error">${a.outboxFailed} undelivered<//>` : a.outboxWaiting ? html`<${Mark} kind="waiting">${a.outboxWaiting} to send<//>` : "";
    return { id: `${id}/${a.accountId}`, cells: [html`<strong>${plain(c.channelLabels[id])}</strong>`, state, html`<span class="quiet">${note}</span> ${out}`] };
  }));
  return html`<${Table} label="Channels" heads=${["Channel", "State", "Notes"]} rows=${rows} empty=${c ? "No channel is configured." : "Reading the channels …"}/>`;
}

function Replicas() {
  const rows = replicas().map((n) => ({
    id: n.nodeId, cells: [html`<strong title=${n.nodeId}>${plain(n.name)}</strong>`, html`<${Mark} kind=${n.draining ? "paused" : "ok"}>${n.draining ? "draining" : "live"}<//>`, html`<span class="quiet">${plain(n.version)}</span>`],
  }));
  return html`<${Table} label="Replicas" heads=${["Replica", "State", "Version"]} rows=${rows} empty="This one only."/>`;
}
