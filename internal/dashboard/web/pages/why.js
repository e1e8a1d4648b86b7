// Why: what happened to a slot of a job. The field on a job's page takes a time; the field in the header takes the name of a job, too.

import { canEdit, isActive, resume, run, verb } from "../jobs.js";
import { explain, jobsOf, knows, live, may, route } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Mark } from "../ui/parts.js";
import { inZone, plain, stamp } from "../ui/text.js";

// The mark of each verdict of cron.explain.
/** @type {Record<string, string>} */
const MARKS = {
  "ran": "ok", "failed": "error", "running": "running", "retrying": "retrying", "waiting": "waiting", "skipped": "skipped", "paused": "paused", "missed": "missed", "no replica": "error", "held": "paused",
  "cancelled": "cancelled", "interrupted": "interrupted", "invalid": "error", "clock change": "skipped", "not in the schedule": "planned", "made later": "planned", "changed since": "planned", "disabled": "paused",
  "ended": "cancelled", "removed": "cancelled", "older than the history": "planned", "not due yet": "planned", "unknown": "warn",
};
const CHANGES = 3; // shown at most
const NAMED = 5; // jobs offered when several match

// addressOf returns the address of a job with the question about a time, "" for its newest slot, and with a run to show in its history.
/** @param {string} id @param {string} [at] @param {string} [run] */
export const addressOf = (id, at, run) => `#/jobs/${encodeURIComponent(id)}${at === undefined ? "" : `?why=${encodeURIComponent(at)}`}${run === undefined ? "" : `&run=${encodeURIComponent(run)}`}`;

// Slot is a link to the explanation of a slot.
/** @param {{id: string, ms: number, zone?: string, children?: any}} props */
export function Slot({ id, ms, zone, children }) {
  return html`<a class="target" href=${addressOf(id, stamp(ms, zone))}>${children}</a>`;
}

// Why reads the explanation again when changed has another value, because the answer about an undecided slot changes with the next fire. Without a job, which
// was removed, it offers no actions.
/** @param {{id: string, changed: string, job?: wire.Job, ask: page.Ask}} props */
export function Why({ id, changed, ...rest }) {
  const asked = route.value.query.get("why");
  const answer = useSignal(/** @type {page.Answer | undefined} */ (undefined)), fault = useSignal(""), again = useSignal(0);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null)), box = useRef(/** @type {HTMLElement | null} */ (null)), inside = useRef(false);
  useEffect(() => { if (field.current) field.current.value = asked ?? ""; }, [asked]);
  useEffect(() => { if (inside.current && document.activeElement === document.body) box.current?.focus(); inside.current = false; }, [answer.value]); // the clicked link has been removed
  useEffect(() => {
    if (asked === null) { answer.value = undefined; fault.value = ""; return undefined; }
    if (!live.value) return undefined;
    let gone = false;
    const show = (/** @type {page.Answer | undefined} */ a, /** @type {string} */ why) => {
      if (gone || !live.value) return;
      inside.current = box.current?.contains(document.activeElement) ?? false;
      answer.value = a;
      fault.value = why;
    };
    explain(id, asked).then((a) => show({ ...a, asked }, ""), (e) => show(undefined, e.message));
    return () => { gone = true; };
  }, [asked, again.value, live.value, changed]);
  const shown = live.value || answer.value?.asked === asked ? answer.value : undefined; // during the request, the old answer stays with its slot
  const ask = (/** @type {Event} */ e) => {
    e.preventDefault();
    const at = field.current?.value.trim() ?? "";
    fault.value = "";
    if (at === asked) again.value++;
    else location.hash = addressOf(id, at);
  };
  return html`<section class="why" aria-labelledby="why-label">
    <form autocomplete="off" onSubmit=${ask}><label id="why-label" for="why"><strong>Why?</strong></label>
      <input id="why" ref=${field} placeholder="9:00" enterkeyhint="go" spellcheck="false" maxlength="64" aria-invalid=${fault.value ? "true" : undefined} aria-describedby=${fault.value ? "why-fault" : "why-hint"}/>
      <span id="why-hint" class=${shown ? "only-read" : "quiet"}>A time in the zone of the job, such as yesterday 9:00, monday 8:30 or 2027-03-02 09:00, then Enter. Empty: the newest slot.</span></form>
    <p id="why-fault" class="fault" role="alert">${plain(fault.value)}</p>
    <div id="why-answer" ref=${box} role="status" tabindex="-1">${shown ? html`<${Answer} id=${id} of=${shown} ...${rest}/>` : asked !== null && !fault.value && html`<p class="quiet">${live.value ? "Asking the gateway …" : "The page asks when the gateway answers."}</p>`}</div>
  </section>`;
}

/** @param {{id: string, of: page.Answer, job?: wire.Job, ask: page.Ask}} props */
function Answer({ id, of: { asked, timezone: zone, slots: [s] }, job, ask }) {
  if (!s) return null;
  const changes = s.changes ?? [];
  return html`<p><${Mark} kind=${MARKS[s.why] ?? "warn"}><strong>${plain(s.why)}</strong><//> <span class="quiet">${inZone(s.slotMs, zone)} ${plain(zone)}</span></p>
    <p class="sentence">${plain(s.text)}</p>
    ${s.cure && html`<p class="cure">What to do: ${plain(s.cure)}</p>`}
    ${(s.acts || s.runId) && html`<p class="buttons">${(s.acts ?? []).map((act) => html`<${Cure} key=${act} act=${act} slot=${s.slotMs} job=${job} ask=${ask}/>`)}
      ${s.runId && knows("cron.runs") && html`<a class="target" href=${addressOf(id, asked, s.runId)}>See it in the history</a>`}</p>`}
    ${changes.length > 0 && html`<ul class="changes">${changes.slice(0, CHANGES).map((c) => html`<li key=${`${c.ts} ${c.verb}`}>Changed since: ${plain(verb(c))} by ${plain(c.who)} at ${inZone(c.ts, zone)}</li>`)}
      ${changes.length > CHANGES && html`<li key="more">and ${changes.length - CHANGES} more</li>`}</ul>`}
    ${(s.beforeMs || s.afterMs) && html`<p class="near">${s.beforeMs && html`<span key="before">Slot before: <${Slot} id=${id} ms=${s.beforeMs} zone=${zone}>${inZone(s.beforeMs, zone)}<//></span>`}
      ${s.afterMs && html`<span key="after">Slot after: <${Slot} id=${id} ms=${s.afterMs} zone=${zone}>${inZone(s.afterMs, zone)}<//></span>`}</p>`}`;
}

// Cure shows the action that an answer suggests, if the caller may use it.
/** @param {{act: string, slot: number, job?: wire.Job, ask: page.Ask}} props */
function Cure({ act, slot, job, ask }) {
  if (act === "runs") return html`<a class="button" href="#/overview">See what runs</a>`;
  if (!job || !may("admin")) return null;
  if (act === "edit") return canEdit(job) && html`<a class="button" href=${`${addressOf(job.id)}?edit`}>Edit the job</a>`;
  if (act === "resume") return !job.enabled && html`<${Act} run=${() => resume(job)}>Resume<//>`;
  if (act === "run") return html`<${Act} run=${() => (isActive(job) ? ask("run", job) : run(job))}>Run now<//>`;
  return act === "backfill" && html`<${Act} run=${() => ask("backfill", job, slot)}>Run this slot…<//>`;
}

// Ask is the field in the header: "digest 9:00". The key / moves the focus to it, Escape moves it back.
export function Ask() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null)), from = useRef(/** @type {HTMLElement | null} */ (null)), note = useSignal(/** @type {any} */ (null));
  useEffect(() => {
    const key = (/** @type {KeyboardEvent} */ e) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /** @type {Element} */ (e.target).closest("input, textarea, select, dialog")) return;
      e.preventDefault();
      from.current = /** @type {HTMLElement} */ (document.activeElement);
      field.current?.select();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const leave = (/** @type {KeyboardEvent} */ e) => {
    if (e.key !== "Escape") return;
    note.value = null;
    field.current?.blur();
    if (from.current?.isConnected) from.current.focus();
  };
  const ask = async (/** @type {Event} */ e) => {
    e.preventDefault();
    const input = field.current, text = input?.value.trim();
    if (!input || !text) return;
    note.value = null;
    try {
      const { name, at, jobs } = await jobsOf(text);
      if (jobs.length === 1) { input.blur(); input.value = ""; location.hash = addressOf(jobs[0].id, at); }
      else if (jobs.length === 0) note.value = html`No job has “${plain(name)}” in its name.`;
      else {
        note.value = html`${jobs.length} jobs have “${plain(name)}” in their name: ${jobs.slice(0, NAMED).map((j) => html`<a class="target" key=${j.id} href=${addressOf(j.id, at)} title=${j.id} onClick=${() => { note.value = null; }}>${plain(j.displayName || j.name)}</a> `)}
          ${jobs.length > NAMED && `and ${jobs.length - NAMED} more; write more of the name.`}`;
      }
    } catch (fault) { note.value = plain(fault.message); }
  };
  return html`<form class="ask" role="search" autocomplete="off" onSubmit=${ask} onKeyDown=${leave}>
    <input id="ask" ref=${field} aria-label="Why did a job not run? Its name and a time" aria-keyshortcuts="/" aria-describedby="ask-note" placeholder="Why? digest 9:00 (key /)" enterkeyhint="go" spellcheck="false" maxlength="256"
      onInput=${() => { note.value = null; }}/>
    <p id="ask-note" role="alert">${note.value}</p></form>`;
}
