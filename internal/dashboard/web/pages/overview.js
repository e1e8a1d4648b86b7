// Overview: what needs attention, lanes, channels, replicas.

import { channels, health, lanes, now, status } from "../store.js";
import { html, useEffect } from "../ui/html.js";
import { Loading, Mark, Table } from "../ui/parts.js";
import { ago, clock, plain, span } from "../ui/text.js";

const ORDER = ["main", "subagent", "team", "cron"];
const SLOW = 10000; // an entry that has waited for longer is a reason to look

export function Overview() {
  useEffect(() => {
    const ends = [status, lanes, channels].map((r) => r.use());
    return () => ends.forEach((end) => end());
  }, []);
  return html`<${Problems}/><${Loading} of=${status} what="the state of the gateway"/><${Figures}/>
    <section aria-labelledby="lanes"><h2 id="lanes">Lanes</h2><${Lanes}/></section>
    <div class="pair"><section aria-labelledby="channels"><h2 id="channels">Channels</h2><${Channels}/></section>
      <section aria-labelledby="replicas"><h2 id="replicas">Replicas</h2><${Replicas}/></section></div>`;
}

function Problems() {
  const problems = health.data.value?.problems ?? [];
  return problems.length > 0 && html`<section class="needs" aria-labelledby="needs"><h2 id="needs">Needs you</h2>
    <ul>${problems.map((p) => html`<li key=${p}><${Mark} kind="error">${plain(p)}<//></li>`)}</ul></section>`;
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

function Bar({ used, all }) {
  return html`<svg class="slots" role="img" aria-label=${`${used} of ${all} slots used`}><rect height="10" width=${`${all > 0 ? Math.min(100, (100 * used) / all) : 0}%`}/></svg>`;
}

function Lanes() {
  const place = (l) => (ORDER.includes(l.name) ? ORDER.indexOf(l.name) : ORDER.length);
  const rows = (lanes.data.value ?? []).toSorted((a, b) => place(a) - place(b)).map((l) => ({
    id: l.name,
    cells: [html`<strong>${plain(l.name)}</strong>`, html`<${Bar} used=${l.active} all=${l.capacity}/>`, `${l.active} of ${l.capacity}${l.stopping ? `, ${l.stopping} stopping` : ""}`,
      l.waiting ? html`<${Mark} kind=${l.oldestWaitMs > SLOW ? "warn" : "waiting"}>${l.waiting}, oldest ${span(l.oldestWaitMs)}<//>` : html`<span class="quiet">0</span>`,
      html`<span class="quiet">${l.finished} done${l.failed ? `, ${l.failed} failed` : ""}${l.cancelled ? `, ${l.cancelled} stopped` : ""}</span>`],
  }));
  return html`<${Table} label="Lanes" heads=${["Lane", "Slots", "Running", "Waiting", "Since start"]} rows=${rows} empty="Reading the lanes …"/>`;
}

function Channels() {
  const c = channels.data.value;
  const rows = (c?.channelOrder ?? []).flatMap((id) => (c.channelAccounts[id] ?? []).map((a) => {
    const state = a.connected ? html`<${Mark} kind="ok">connected<//>` : a.running ? html`<${Mark} kind="error">not connected<//>` : html`<${Mark} kind="planned">${a.enabled ? "stopped" : "off"}<//>`;
    const note = id === "web" ? `${c.channels.web.connections} open` : plain(a.lastError) || (a.lastPollAgeMs === null ? "" : `polled ${ago(channels.at.value - a.lastPollAgeMs, now.value)}`);
    const out = a.outboxFailed ? html`<${Mark} kind="error">${a.outboxFailed} undelivered<//>` : a.outboxWaiting ? html`<${Mark} kind="waiting">${a.outboxWaiting} to send<//>` : "";
    return { id: `${id}/${a.accountId}`, cells: [html`<strong>${plain(c.channelLabels[id])}</strong>`, state, html`<span class="quiet">${note}</span> ${out}`] };
  }));
  return html`<${Table} label="Channels" heads=${["Channel", "State", "Notes"]} rows=${rows} empty=${c ? "No channel is configured." : "Reading the channels …"}/>`;
}

function Replicas() {
  const rows = (status.data.value?.nodes ?? []).map((n) => ({
    id: n.nodeId, cells: [html`<strong>${plain(n.nodeId)}</strong>`, html`<${Mark} kind=${n.draining ? "paused" : "ok"}>${n.draining ? "draining" : "live"}<//>`, html`<span class="quiet">${plain(n.version)}</span>`],
  }));
  return html`<${Table} label="Replicas" heads=${["Replica", "State", "Version"]} rows=${rows} empty="This one only."/>`;
}
