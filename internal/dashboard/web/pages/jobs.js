// Jobs: what runs when, and with which outcomes. The address has the filter, the order and the page.

import { CONDITIONS, PAGE, SORTS, STRIP, addressOf, asked, done, hold, isActive, named, page, resume, rowOf, run, stop } from "../jobs.js";
import { call, fault, may, now, route } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Loading, Mark, Menu, useHeldOrder } from "../ui/parts.js";
import { Strip, middle, streak } from "../ui/strip.js";
import { ago, near, plain, span, took } from "../ui/text.js";
import { Job } from "./job.js";
import { Pause } from "./pause.js";
import { addressOf as addressOfJob } from "./why.js";

const HEADS = ["Name", "Schedule", "Next", "Last", `Last ${STRIP}`, "In a row", "p50"];
const TITLES = { next: "next fire", name: "name", last: "last run", failing: "failures in a row" };

export function Jobs() {
  const asking = useSignal(/** @type {{kind: page.Asked, job: wire.Job, slot?: number} | null} */ (null));
  const close = () => { asking.value = null; };
  const ask = async (/** @type {page.Asked} */ kind, /** @type {wire.Job} */ j, /** @type {number | undefined} */ slot) => { asking.value = { kind, slot, job: kind === "pause" ? j : await call("cron.get", { id: j.id, extended: true }) }; };
  const id = route.value.rest[0];
  if (!id && may("admin") && route.value.query.has("new")) return html`<${Form}/>`;
  const a = asking.value;
  return html`${id ? html`<${Job} key=${id} id=${id} ask=${ask}/>` : html`<${List} ask=${ask}/>`}
    <${Undo}/>${a && (a.kind === "pause" ? html`<${Pause} job=${a.job} close=${close}/>` : html`<${Later} load=${() => import("./jobask.js")} part="Ask" kind=${a.kind} job=${a.job} slot=${a.slot} close=${close}/>`)}`;
}

// Later is a component from a module that is loaded on demand.
/** @param {{load: () => Promise<Record<string, any>>, part: string, [prop: string]: any}} props */
function Later({ load, part, ...props }) {
  const module = useSignal(/** @type {Record<string, any> | null} */ (null));
  useEffect(() => { load().then((m) => { module.value = m; }, (e) => { fault.value = e.message; }); }, []);
  return module.value ? html`<${module.value[part]} ...${props}/>` : html`<p class="quiet">Loading …</p>`;
}

/** @param {{job?: wire.Job}} props */
export function Form({ job }) {
  return html`<${Later} load=${() => import("./jobform.js")} part="JobForm" job=${job}/>`;
}

// Undo offers for ten seconds to undo the last action.
export function Undo() {
  const d = done.value, left = d ? Math.ceil((d.until - now.value) / 1000) : 0;
  return html`<p class="undo" role="status">${d && left > 0 && html`${plain(d.text)} <${Act} id="undo" run=${d.back}>Undo<//> <span class="quiet" aria-hidden="true">${left} s</span>`}</p>`;
}

/** @param {{ask: page.Ask}} props */
function List({ ask }) {
  useEffect(page.use, []);
  const a = asked(), shown = page.data.value;
  useEffect(() => { page.refresh(); }, [JSON.stringify(a)]);
  return html`<${Filters} asked=${a} counts=${shown?.counts}/><${Loading} of=${page} what="the jobs"/>${shown && html`<${Rows} key=${JSON.stringify(shown.asked)} list=${shown} ask=${ask}/>`}`;
}

/** @param {{asked: page.Jobs["asked"], counts?: wire.JobCounts}} props */
function Filters({ asked: a, counts }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => { if (field.current && document.activeElement !== field.current) field.current.value = a.find; }, [a.find]);
  const find = (/** @type {Event} */ e) => { e.preventDefault(); location.hash = addressOf({ find: field.current?.value.trim() ?? "" }); };
  return html`<div class="filters">${may("admin") && html`<a class="button" id="new-job" href="#/jobs?new">New job</a>`}
    <nav class="conditions" aria-label="Jobs by condition">${CONDITIONS.map((c) => html`<a class="target" key=${c} href=${addressOf({ only: c })} aria-current=${c === a.only ? "true" : undefined}>${c} <span class="quiet">${counts?.[c] ?? ""}</span></a>`)}</nav>
    <form autocomplete="off" onSubmit=${find}><input id="find" ref=${field} type="search" aria-label="Find jobs by name, or by agent: or target: and a name" placeholder="name, agent:main, target:telegram" spellcheck="false" maxlength="256"
      onSearch=${(/** @type {page.Input} */ e) => { if (e.target.value === "" && a.find) location.hash = addressOf({ find: "" }); }}/></form>
    <label>Sort <select id="sort" value=${a.sort} onChange=${(/** @type {{target: {value: page.Jobs["asked"]["sort"]}}} */ e) => { location.hash = addressOf({ sort: e.target.value }); }}>${SORTS.map((s) => html`<option key=${s} value=${s}>${TITLES[s]}</option>`)}</select></label></div>`;
}

/** @param {{list: page.Jobs, ask: page.Ask}} props */
function Rows({ list, ask }) {
  const held = useHeldOrder(list.ids, (id) => id, PAGE);
  useEffect(() => { hold(held.held); return () => hold(() => false); });
  const filtered = list.asked.only !== "all" || list.asked.find !== "";
  return html`${held.moved > 0 && html`<p><button type="button" onClick=${held.sort}>The order has changed: sort again</button></p>`}
    <section ref=${held.box}><table class="rows jobs" aria-label="Jobs">
      <thead><tr>${HEADS.map((h) => html`<th key=${h} scope="col">${h}</th>`)}<td></td></tr></thead>
      <tbody>${held.shown.map((id) => html`<${Row} key=${id} id=${id} ask=${ask}/>`)}
        ${list.ids.length === 0 && html`<tr><td class="empty" colspan="8">${filtered ? html`No job fits. <a href="#/jobs">Show all jobs</a>` : html`No jobs yet. A job starts a turn by the clock. In a terminal: <code>laneway cron add --help</code>`}</td></tr>`}</tbody></table></section>
    ${(list.next || list.asked.after) && html`<nav class="pages" aria-label="Pages"><span class="quiet">${Math.min(list.ids.length, PAGE)} of ${list.total}</span>
      ${list.asked.after && html`<a class="target" href=${addressOf({ after: "" })}>First page</a>`}${list.next && html`<a class="target" id="next" href=${addressOf({ after: list.next })}>Next page</a>`}</nav>`}`;
}

/** @param {{id: string, ask: page.Ask}} props */
function Row({ id, ask }) {
  const row = rowOf(id);
  if (!row) return null;
  const j = row.value;
  const cells = [html`<${Name} job=${j}/>`, html`<${When} s=${j.schedule} words=${j.scheduleWords}/>`, html`<${Next} job=${j}/>`, html`<${Last} job=${j}/>`, html`<${Strip} outcomes=${j.outcomes} zone=${j.schedule.tz}/>`, html`<${Streak} job=${j}/>`, took(middle(j.outcomes))];
  return html`<tr>${cells.map((c, i) => html`<td key=${i} data-head=${HEADS[i]}><div>${c}</div></td>`)}<td class="acts"><${Acts} job=${j} ask=${ask}/></td></tr>`;
}

// conditionOf returns the worst condition of a job, which its mark shows.
/** @param {wire.Job} j */
export function conditionOf(j) {
  if (j.invalid) return ["error", "invalid"];
  if (j.state?.runningAtMs) return ["running", "running"];
  if (!j.enabled) return ["paused", j.paused ? "paused" : "off"];
  if (j.state?.consecutiveErrors) return ["error", "failing"];
  if (j.deliveryPaused) return ["warn", "not sent"];
  return j.outcomes?.[0]?.outcome === "ok" ? ["ok", "ok"] : ["planned", "on"];
}

/** @param {{job: wire.Job}} props */
function Name({ job: j }) {
  const [kind, word] = conditionOf(j);
  return html`<${Mark} kind=${kind}><a href=${addressOfJob(j.id)} title=${j.id}>${plain(j.displayName || j.name)}</a><span class="only-read"> ${word}</span><//>`;
}

/** @param {{job: wire.Job}} props */
export function Next({ job: j }) {
  const at = j.nextRunAtMs, zone = j.schedule.tz;
  if (j.invalid) return html`<span>invalid: ${plain(j.invalid)}</span>`;
  if (!j.enabled) {
    const p = j.paused;
    if (!p) return html`<span>off${j.state.autoDisabled ? ", after failures in a row" : ""}</span>`;
    return html`<span>paused${p.untilMs ? ` until ${near(p.untilMs, zone, now.value)}` : ""} <span class="quiet">“${plain(p.note)}”, ${p.by ? `by ${plain(p.by)}, ` : ""}since ${near(p.atMs, zone, now.value)}</span></span>`;
  }
  if (!at) return "–";
  const late = now.value - at;
  if (late > 10000) return html`<${Mark} kind="warn">late ${span(late)}<//>`;
  return html`${late > -1000 ? "now" : `in ${span(-late)}`} <span class="quiet">${near(at, zone, now.value)}</span>${j.deliveryPaused && html` <${Mark} kind="warn">not sent: ${plain(j.deliveryPaused.reason)}<//>`}`;
}

/** @param {{job: wire.Job}} props */
export function Last({ job: j }) {
  const o = j.outcomes?.[0];
  if (j.state?.runningAtMs) return html`<${Mark} kind="running">running, ${span(Math.max(0, now.value - j.state.runningAtMs))}<//>`;
  if (!o) return html`<span class="quiet">never</span>`;
  const why = o.reason || (o.outcome === "error" ? j.state?.lastErrorReason : "");
  return html`<${Mark} kind=${o.outcome}>${o.outcome}, ${ago(o.slotMs, now.value)}<//>${why && html` <span class="quiet">${plain(why)}</span>`}`;
}

/** @param {{job: wire.Job}} props */
function Streak({ job: j }) {
  const text = streak(j, STRIP);
  return text === "–" ? html`<span class="quiet">–</span>` : html`<span>${text}</span>`;
}

/** @param {{job: wire.Job, ask: page.Ask}} props */
export function Acts({ job: j, ask }) {
  const active = isActive(j);
  const stopping = active && html`<${Act} key="stop" class="stop" run=${() => stop(j)}>Stop<//>`;
  if (!may("admin")) return may("write") && stopping ? stopping : "";
  return html`${stopping}<${Act} key="run" class="run" run=${() => (active ? ask("run", j) : run(j))}>Run now<//>
    ${j.enabled ? html`<${Act} key="pause" class="pause" run=${() => ask("pause", j)}>Pause…<//>` : html`<${Act} key="pause" class="pause" run=${() => resume(j)}>Resume<//>`}
    ${j.enabled && j.deliveryPaused && html`<${Act} key="send" run=${() => resume(j)}>Send again<//>`}
    ${!j.id.startsWith("system:") && html`<${Menu} key="menu" label=${`More for ${plain(named(j))}`}><${Act} run=${() => ask("command", j)}>Copy as command…<//><${Act} class="danger" run=${() => ask("remove", j)}>Delete…<//><//>`}`;
}

// When is a schedule in words. Only a single moment is rendered again with the clock.
/** @param {{s: wire.JobSchedule, words?: string}} props */
export function When({ s, words }) {
  if (s.kind === "every") return `every ${span(s.everyMs ?? 0)}`;
  if (s.kind === "at") return `once, ${near(Date.parse(s.at ?? "") || (s.atMs ?? NaN), s.tz, now.value)}`;
  return words ? html`<span title=${`${s.expr} ${s.tz}`}>${plain(words)}</span>` : html`<code>${plain(s.expr ?? s.kind)}</code> <span class="quiet">${plain(s.tz)}</span>`;
}
