// Jobs: what will run when, and how it went.

import { call, jobs, knows, live, may, now, route, runsOf } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Loading, Mark, Table, useHeldOrder } from "../ui/parts.js";
import { ago, moment, plain, span, when } from "../ui/text.js";
import { Slot, Why, addressOf } from "./why.js";

const HEADS = ["Name", "Schedule", "Next", "Last", "State", ""];
const NOT_RUN = ["skipped", "missed", "error", "cancelled", "interrupted"];

export function Jobs() {
  useEffect(jobs.use, []);
  const id = route.value.rest[0];
  return html`<${Loading} of=${jobs} what="the jobs"/>${id ? html`<${Job} key=${id} id=${id}/>` : jobs.data.value && html`<${List} list=${jobs.data.value}/>`}`;
}

function List({ list }) {
  const held = useHeldOrder(list, (j) => j.id);
  return html`${held.moved > 0 && html`<p><button type="button" onClick=${held.sort}>The order has changed: sort again</button></p>`}
    <section ref=${held.box}><${Table} label="Jobs" heads=${HEADS} rows=${held.shown.map(row)}
      empty=${html`No jobs yet. A job starts a turn by the clock. In a terminal: <code>laneway cron add --help</code>`}/></section>`;
}

// Job is the view of one job; also of one that was removed, whose history is still there.
function Job({ id }) {
  const job = jobs.data.value?.find((j) => j.id === id), head = useRef(null);
  useEffect(() => { if (document.activeElement === document.body) head.current.focus(); }, [route.value]); // after a link or a question, whose element has gone
  return html`<div class="title"><h2 id="job" ref=${head} tabindex="-1">${plain(job ? job.displayName || job.name : id)}</h2> <a class="target" href="#/jobs">All jobs</a></div>
    ${knows("cron.explain") && html`<${Why} id=${id} changed=${`${job?.updatedAtMs} ${job?.lastRunAtMs} ${job?.state?.runningAtMs}`}/>`}
    ${job ? html`<${Table} label="Job" heads=${HEADS.slice(1)} rows=${[{ ...row(job), cells: row(job).cells.slice(1) }]}/>` : jobs.data.value && html`<p class="quiet">No job of the list has this id. It may have been removed; its history is kept.</p>`}
    <${History} id=${id} job=${job}/>`;
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
      html`<a href=${addressOf(j.id)} title=${j.id}>${plain(j.displayName || j.name)}</a>`, schedule(j.schedule, now.value), j.enabled ? when(j.nextRunAtMs, now.value) : "–",
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

function History({ id, job }) {
  const runs = useSignal(undefined), failed = useSignal("");
  useEffect(() => { if (live.value) runsOf(id).then((r) => { runs.value = r; failed.value = ""; }, (e) => { failed.value = e.message; }); }, [live.value, job?.lastRunAtMs, job?.state?.runningAtMs]);
  const rows = (runs.value ?? []).map((r) => {
    const outcome = r.outcome ?? r.status, slot = r.scheduledForMs ?? r.runAtMs ?? r.ts;
    return {
      id: r.runId ?? `${r.scheduledForMs}-${r.ts}`,
      cells: [moment(slot), html`<${Mark} kind=${outcome === "queued" ? "waiting" : outcome}>${outcome}<//>`, r.durationMs === undefined ? "" : span(r.durationMs), plain(r.error || r.reason || r.summary)],
      acts: r.scheduledForMs && NOT_RUN.includes(outcome) && knows("cron.explain") ? html`<${Slot} id=${id} ms=${slot} zone=${job?.schedule?.tz}>why<span class="only-read"> it is ${outcome}, ${moment(slot)}</span><//>` : "",
    };
  });
  return html`<section aria-labelledby="history"><h2 id="history">Runs</h2>
    ${failed.value && html`<p class="fault" role="alert">${plain(failed.value)}</p>`}
    <${Table} label="Runs" heads=${["Time", "Outcome", "Took", "Answer or reason", ""]} rows=${rows} empty=${runs.value ? "It has not run yet." : "Reading the runs …"}/></section>`;
}
