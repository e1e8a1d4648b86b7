// Jobs: what will run when, and how it went.

import { call, jobs, may, now, route, runsOf } from "../store.js";
import { html, useEffect, useSignal } from "../ui/html.js";
import { Act, Loading, Mark, Table, useHeldOrder } from "../ui/parts.js";
import { ago, moment, plain, span, when } from "../ui/text.js";

export function Jobs() {
  useEffect(jobs.use, []);
  const list = jobs.data.value;
  const held = useHeldOrder(list ?? [], (j) => j.id);
  if (!list) return html`<${Loading} of=${jobs} what="the jobs"/>`;
  const open = list.find((j) => j.id === route.value.rest[0]);
  const heads = ["Name", "Schedule", "Next", "Last", "State", ""];
  return html`<${Loading} of=${jobs} what="the jobs"/>
    ${held.moved > 0 && html`<p><button type="button" onClick=${held.sort}>The order has changed: sort again</button></p>`}
    <section ref=${held.box}><${Table} label="Jobs" heads=${heads} rows=${held.shown.map(row)}
      empty=${html`No jobs yet. A job starts a turn by the clock. In a terminal: <code>laneway cron add --help</code>`}/></section>
    ${open && html`<${History} key=${open.id} job=${open}/>`}`;
}

function row(j) {
  const last = j.lastRunStatus ?? j.state?.lastRunStatus;
  const change = (method, params) => async () => { await call(method, params); await jobs.refresh(); };
  const state = j.invalid ? html`<${Mark} kind="error">invalid: ${plain(j.invalid)}<//>` : j.state?.runningAtMs ? html`<${Mark} kind="running">running<//>`
    : !j.enabled ? html`<${Mark} kind="paused">${j.paused ? "paused" : "off"}<//>`
      : j.deliveryPaused ? html`<${Mark} kind="warn">not sent: ${plain(j.deliveryPaused.reason)}<//>` : html`<${Mark} kind="planned">on<//>`;
  return {
    id: j.id,
    cells: [
      html`<a href=${`#/jobs/${encodeURIComponent(j.id)}`} title=${j.id}>${plain(j.displayName || j.name)}</a>`, schedule(j.schedule, now.value), j.enabled ? when(j.nextRunAtMs, now.value) : "–",
      last ? html`<${Mark} kind=${last}>${last}, ${ago(j.lastRunAtMs, now.value)}<//>${last === "error" ? html` <span class="quiet">${plain(j.lastRunError || j.state?.lastErrorReason)}</span>` : ""}` : html`<span class="quiet">never</span>`,
      state,
    ],
    acts: may("admin") ? html`<${Act} key="run" run=${change("cron.run", { id: j.id, mode: "force" })}>Run now<//>
      ${j.enabled ? html`<${Act} key="pause" run=${change("cron.pause", { id: j.id, note: "paused in the dashboard" })}>Pause<//>`
        : html`<${Act} key="pause" run=${change(j.paused ? "cron.resume" : "cron.toggle", j.paused ? { id: j.id } : { jobId: j.id, enabled: true })}>Resume<//>`}
      ${j.enabled && j.deliveryPaused && html`<${Act} key="send" run=${change("cron.resume", { id: j.id })}>Send again<//>`}` : "",
  };
}

function schedule(s = {}, at) {
  if (s.kind === "every") return `every ${span(s.everyMs)}`;
  if (s.kind === "at") return `once, ${when(Date.parse(s.at) || s.atMs, at)}`;
  return html`<code>${plain(s.expr ?? s.kind)}</code> <span class="quiet">${plain(s.tz)}</span>`;
}

function History({ job }) {
  const runs = useSignal(undefined), failed = useSignal("");
  useEffect(() => { runsOf(job.id).then((r) => { runs.value = r; }, (e) => { failed.value = e.message; }); }, [job.lastRunAtMs, job.state?.runningAtMs]);
  const rows = (runs.value ?? []).map((r) => ({
    id: r.runId ?? `${r.scheduledForMs}-${r.ts}`,
    cells: [moment(r.scheduledForMs ?? r.runAtMs ?? r.ts), html`<${Mark} kind=${r.outcome === "queued" ? "waiting" : r.outcome ?? r.status}>${r.outcome ?? r.status}<//>`, r.durationMs === undefined ? "" : span(r.durationMs), plain(r.error || r.reason || r.summary)],
  }));
  return html`<section aria-labelledby="history"><h2 id="history">Runs of ${plain(job.displayName || job.name)} <a href="#/jobs">close</a></h2>
    ${failed.value && html`<p class="fault" role="alert">${failed.value}</p>`}
    <${Table} label="Runs" heads=${["Time", "Outcome", "Took", "Answer or reason"]} rows=${rows} empty=${runs.value ? "It has not run yet." : "Reading the runs …"}/></section>`;
}
