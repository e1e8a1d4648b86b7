// One job: its state, its actions, why a slot ran or did not run, and its history. A removed job is shown, too, because its history is kept.

import { STRIP, canEdit, history, one, showMore, slotOf, verb, wanted } from "../jobs.js";
import { knows, now, route } from "../store.js";
import { html, useEffect, useRef } from "../ui/html.js";
import { Loading, Mark, Table } from "../ui/parts.js";
import { Strip, streak } from "../ui/strip.js";
import { inZone, plain, span, took } from "../ui/text.js";
import { address } from "./messages.js";
import { Acts, Form, Last, Next, When, conditionOf } from "./jobs.js";
import { Slot, Why } from "./why.js";

const NOT_RUN = ["skipped", "missed", "error", "cancelled", "interrupted"];

/** @param {{id: string, ask: page.Ask}} props */
export function Job({ id, ask }) {
  const head = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    wanted.value = 20;
    const ends = [one, history].map((r) => r.use());
    return () => ends.forEach((end) => end());
  }, []);
  useEffect(() => { if (document.activeElement === document.body) head.current?.focus(); }, [route.value]); // after a link or a question whose element has been removed
  const read = one.data.value?.id === id ? one.data.value : undefined, job = read?.job;
  if (job && canEdit(job) && route.value.query.has("edit")) return html`<${Form} key=${job.id} job=${job}/>`;
  const [kind, word] = job ? conditionOf(job) : [];
  return html`<div class="title"><h2 id="job" ref=${head} tabindex="-1">${plain(job ? job.displayName || job.name : id)}</h2>
      ${job && html`<${Mark} kind=${kind}>${word}<//> <span class="quiet">${streak(job, STRIP)} in a row</span>`}
      <span class="acts">${job && html`<${Acts} job=${job} ask=${ask}/>`}</span>
      ${job && canEdit(job) && html`<a class="button" id="edit" href=${`#/jobs/${encodeURIComponent(id)}?edit`}>Edit</a>`} <a class="target" href="#/jobs">All jobs</a></div>
    <${Loading} of=${one} what="the job"/>
    ${job && html`<dl class="facts"><div><dt>Schedule</dt><dd><${When} s=${job.schedule} words=${job.scheduleWords}/></dd></div><div><dt>Next</dt><dd><${Next} job=${job}/></dd></div>
      <div><dt>Last</dt><dd><${Last} job=${job}/></dd></div><div><dt>Last ${STRIP}</dt><dd><${Strip} outcomes=${job.outcomes} zone=${job.schedule.tz}/></dd></div></dl>`}
    ${job?.warnings?.map((w) => html`<p key=${w}><${Mark} kind="warn">${plain(w)}<//></p>`)}
    ${read && !job && html`<p class="quiet">No job has this id. It may have been removed; its history is kept.</p>`}
    ${knows("cron.explain") && html`<${Why} id=${id} changed=${`${job?.updatedAtMs} ${job?.lastRunAtMs} ${job?.state?.runningAtMs}`} job=${job} ask=${ask}/>`}
    <${History} id=${id} job=${job}/>`;
}

/** @param {{id: string, job?: wire.Job}} props */
function History({ id, job }) {
  const read = history.data.value?.id === id ? history.data.value : undefined, zone = job?.schedule?.tz;
  const chosen = route.value.query.get("run"), box = useRef(/** @type {HTMLElement | null} */ (null)), there = read?.entries.some((r) => r.runId === chosen);
  useEffect(() => { if (chosen) history.refresh(); }, [chosen]);
  useEffect(() => { if (there) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector("tr.hit"))?.focus(); }, [chosen, there]);
  const runs = (read?.entries ?? []).map((r) => {
    const outcome = r.outcome ?? r.status ?? "running", slot = slotOf(r);
    return {
      id: r.runId, at: slot, hit: r.runId === chosen,
      cells: [inZone(slot, zone), html`<${Mark} kind=${outcome === "queued" ? "waiting" : outcome}>${outcome}<//>`, html`<${Took} of=${r}/>`, html`<${Detail} of=${r}/>`],
      acts: r.scheduledForMs && NOT_RUN.includes(outcome) && knows("cron.explain") ? html`<${Slot} id=${id} ms=${slot} zone=${zone}>why<span class="only-read"> it is ${outcome}, ${inZone(slot, zone)}</span><//>` : "",
    };
  });
  const changes = (read?.changes ?? []).map((c) => ({ id: `${c.ts} ${c.verb}`, at: c.ts, cells: [inZone(c.ts, zone), html`<${Mark} kind="changed">${plain(verb(c))}<//>`, "", html`<span class="quiet">by ${plain(c.who)}</span>`] }));
  const rows = [...runs, ...changes].sort((a, b) => b.at - a.at);
  return html`<section ref=${box} aria-labelledby="history"><h2 id="history">Runs</h2><${Loading} of=${history} what="the runs"/>
    ${read && html`<${Table} label="Runs" heads=${["Slot", "Outcome", "Took", "Answer or reason", ""]} rows=${rows} empty="It has not run yet."/>`}
    ${read?.more && html`<p><button type="button" id="more" onClick=${showMore}>Show older runs</button></p>`}</section>`;
}

/** @param {{of: wire.LedgerEntry}} props */
function Took({ of: r }) {
  if (r.outcome === "running" && r.runAtMs) return `${span(Math.max(0, now.value - r.runAtMs))} so far`;
  return r.durationMs === undefined ? "" : took(r.durationMs);
}

// Detail shows why a run failed, each attempt, and the delivery of its answer.
/** @param {{of: wire.LedgerEntry}} props */
function Detail({ of: r }) {
  const { attempts = [], slotCount = 1, slotUntilMs = 0 } = r;
  const count = slotCount > 1 ? `${slotCount} slots until ${inZone(slotUntilMs)}. ` : "";
  return html`<span>${count}${plain(r.error || r.reason || r.summary)}</span>
    ${r.usage && html` <span class="quiet">${r.usage.input_tokens.toLocaleString()} tokens in, ${r.usage.output_tokens.toLocaleString()} out</span>`}
    ${r.sessionKey && html` <a class="target" href=${address(r.sessionKey)}>Conversation<span class="only-read"> of the run, ${inZone(slotOf(r))}</span></a>`}
    ${r.trigger && r.trigger !== "schedule" && html` <span class="quiet">(${r.trigger === "manual" ? "by hand" : r.trigger})</span>`}
    ${r.policy && html` <span class="quiet">by ${plain(r.policy)}</span>`}
    ${r.deliveryStatus === "not-delivered" && html` <${Mark} kind="error">not delivered${r.deliveryError ? `: ${plain(r.deliveryError)}` : ""}<//>`}
    ${attempts.length > 1 && html`<ol class="attempts">${attempts.map((a) => html`<li key=${a.attempt}><${Mark} kind=${a.status === "timeout" ? "error" : a.status ?? "running"}>attempt ${a.attempt}: ${a.status ?? "running"}<//>
      <span class="quiet">${a.durationMs === undefined ? "" : took(a.durationMs)} ${plain(a.error)} ${a.nodeId ? `on ${plain(a.nodeId)}` : ""}</span></li>`)}</ol>`}`;
}
