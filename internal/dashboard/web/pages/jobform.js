// The form of a job: when it fires, as computed by the gateway, what it does and where its answer goes. A refusal of the gateway is shown at its field.

import { boundsOf, command, DAYS, POLICIES, PRESETS, draftOf, dstOf, empty, members, patchOf, scheduleOf } from "../jobdraft.js";
import { create, edit } from "../jobs.js";
import { call, live, now } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Mark } from "../ui/parts.js";
import { inZone, plain, span } from "../ui/text.js";
import { addressOf } from "./why.js";

const WAIT = 200; // ms from a key to the request to the gateway
const FIRES = 5;
/** @type {Record<string, string>} */
const RULES = { run_after: "run after it", skip: "skip", first: "the first", second: "the second", both: "both" };
// The protocol member that a refusal names, and the field that shows it.
/** @type {Record<string, string>} */
const FIELDS = { name: "name", schedule: "when", dst: "when", payload: "message", agentId: "agent", sessionTarget: "session", delivery: "deliver", retry: "more", startsAtMs: "more", endsAtMs: "more", maxRuns: "more", failureAlert: "more", timeoutSeconds: "more", overlap: "more", missed: "more" };
/** @param {string} [member] */
const fieldOf = (member) => FIELDS[(member ?? "").split(/[.[]/)[0]] ?? "";

/** @param {{job?: wire.Job}} props */
export function JobForm({ job }) {
  const before = job ? draftOf(job) : null;
  const draft = useSignal(before ?? empty()), fault = useSignal({ field: "", text: "" }), theirs = useSignal(/** @type {wire.Job | null} */ (null)), base = useRef(job), head = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => { head.current?.focus(); }, []); // the link that opened the form has been removed
  const d = draft.value, set = (/** @type {string} */ name) => (/** @type {page.Input} */ e) => { draft.value = { ...draft.value, [name]: e.target.value }; };
  const patch = base.current ? patchOf(draftOf(base.current), d, base.current.payload) : undefined;
  const refused = (/** @type {any} */ e) => {
    if (job && e.code === "CRON_JOB_CHANGED") return call("cron.get", { id: job.id, extended: true }).then((j) => { theirs.value = j; });
    fault.value = { field: fieldOf(e.field), text: e.message };
    /** @type {HTMLElement | null} */ (document.querySelector(`#job-${fault.value.field}`))?.focus();
    return undefined;
  };
  const save = (/** @type {boolean} */ paused) => async () => {
    fault.value = { field: "", text: "" };
    try {
      const made = { .../** @type {wire.Calls["cron.add"]["params"]} */ (members(d)), ...(paused ? { paused: { note: "made paused" } } : {}) };
      const saved = /** @type {wire.Job} */ (base.current && patch ? await edit(base.current, patch) : await create(made));
      location.hash = addressOf(saved.id);
    } catch (e) { await refused(e); }
  };
  const wrong = (/** @type {string} */ field) => (fault.value.field === field ? { "aria-invalid": "true", "aria-describedby": "job-fault" } : {});
  const text = (/** @type {keyof page.Draft} */ name, /** @type {string} */ label, /** @type {object} */ more) => html`<label>${label} <input id=${`job-${name}`} value=${d[name]} onInput=${set(name)} ...${wrong(name)} ...${more}/></label>`;
  const choose = (/** @type {keyof page.Draft} */ name, /** @type {string} */ label, /** @type {string[]} */ values, words = (/** @type {string} */ v) => v) => html`<label>${label} <select id=${`job-${name}`} value=${d[name]} onChange=${set(name)}>${values.map((v) => html`<option key=${v} value=${v}>${words(v)}</option>`)}</select></label>`;
  const policy = (/** @type {keyof typeof POLICIES} */ name, /** @type {string} */ label) => choose(name, label, ["", ...POLICIES[name]], (v) => v || "as the gateway does");
  const line = command(d, job?.id, patch), nothing = patch && Object.keys(patch).length === 0;
  return html`<div class="title"><h2 id="job" ref=${head} tabindex="-1">${job ? `Edit ${plain(job.displayName || job.name)}` : "New job"}</h2> <a class="target" href=${job ? addressOf(job.id) : "#/jobs"}>${job ? "Back to the job" : "All jobs"}</a></div>
    ${theirs.value && html`<${Conflict} mine=${patch} theirs=${theirs.value} keep=${() => { if (base.current && theirs.value) base.current = { ...base.current, configRevision: theirs.value.configRevision }; theirs.value = null; }}
      take=${() => { if (theirs.value) { base.current = theirs.value; draft.value = draftOf(theirs.value); } theirs.value = null; }}/>`}
    <form class="job" autocomplete="off" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
      <section aria-labelledby="form-what">${text("name", "Name", { maxlength: 128, required: true })}<h3 id="form-what">When</h3>
        ${choose("preset", "It runs", [...PRESETS.keys()], (v) => PRESETS.get(v) ?? v)}<div class="line" id="job-when" tabindex="-1" ...${wrong("when")}>
        ${d.preset === "once" && text("at", "Date and time", { type: "datetime-local" })}${d.preset === "every" && text("every", "Minutes between two runs", { type: "number", min: 1 })}
        ${d.preset === "hourly" && html`<label>Minute <input id="job-time" type="number" min="0" max="59" value=${Number(d.time.slice(3))} onInput=${(/** @type {page.Input} */ e) => { draft.value = { ...draft.value, time: `00:${String(e.target.value).padStart(2, "0")}` }; }}/></label>`}
        ${["daily", "weekdays", "weekly", "monthly"].includes(d.preset) && text("time", "Time", { type: "time" })}${d.preset === "weekly" && choose("day", "Day", ["1", "2", "3", "4", "5", "6", "0"], (v) => DAYS[Number(v)])}
        ${d.preset === "free" && text("expr", "Cron expression, five or six fields", { spellcheck: "false", maxlength: 256 })}${d.preset !== "every" && text("tz", "Time zone", { list: "zones", spellcheck: "false" })}</div>
        <datalist id="zones">${Intl.supportedValuesOf("timeZone").map((z) => html`<option key=${z} value=${z}/>`)}</datalist>
        <${Preview} draft=${d} job=${job} set=${set}/></section>
      <section aria-labelledby="form-does"><h3 id="form-does">What</h3>
        <label>Message <textarea id="job-message" rows="4" value=${d.message} onInput=${set("message")} ...${wrong("message")}></textarea></label>
        ${text("agent", "Agent", { placeholder: "the default agent", spellcheck: "false" })}${text("session", "History: isolated (fresh each run), main, or session:KEY", { spellcheck: "false" })}
        ${text("deliver", "Answer to: last, telegram:CHAT, web:SESSION or a URL; empty = it is kept in the history", { spellcheck: "false" })}
        <details id="job-more" open=${fault.value.field === "more" ? true : undefined}><summary>More</summary><div class="line">${policy("overlap", "When a run is still active")}${policy("missed", "Slots that passed while no gateway ran")}${policy("gap", "Times that do not exist")}${policy("fold", "Times that come twice")}
          ${text("window", "Minutes for which a missed slot still runs", { type: "number", min: 0 })}${text("most", "Missed slots that run at most", { type: "number", min: 1 })}
          ${text("retries", "Attempts after a failure", { type: "number", min: 0 })}${text("timeout", "Seconds of an attempt at most", { type: "number", min: 0 })}
          ${text("from", `Not before (${d.tz || "UTC"})`, { type: "datetime-local" })}${text("until", `Not after (${d.tz || "UTC"})`, { type: "datetime-local" })}${text("runs", "Ends after so many fires", { type: "number", min: 1 })}${text("alert", "Failures in a row before an alert, 0 = no alert", { type: "number", min: 0 })}</div></details></section>
      <p id="job-fault" class="fault" role="alert">${plain(fault.value.text)}</p>
      <div class="buttons"><${Act} id="save" class="primary" run=${save(false)}>Save<//>${!job && html`<${Act} id="save-paused" run=${save(true)}>Save paused<//>`}${nothing && html`<span class="quiet">Nothing is changed yet.</span>`}</div>
      ${!nothing && html`<p class="command"><code id="command">${plain(line)}</code> ${navigator.clipboard && html`<${Act} run=${() => navigator.clipboard.writeText(line)}>Copy<//>`}</p>`}</form>`;
}

// Preview shows the next fires as computed by the scheduler, those before the edit, and the effect of clock changes. The last successful answer stays.
/** @param {{draft: page.Draft, job?: wire.Job, set: (name: string) => (e: page.Input) => void}} props */
function Preview({ draft: d, job, set }) {
  const good = useSignal(/** @type {wire.CronPreviewResult & {asked: string} | undefined} */ (undefined)), bad = useSignal(""), old = useSignal(/** @type {wire.CronPreviewResult | undefined} */ (undefined));
  const asked = JSON.stringify({ ...(job ? { id: job.id } : {}), schedule: scheduleOf(d), dst: dstOf(d), ...boundsOf(d) });
  useEffect(() => { if (job) call("cron.preview", { id: job.id, count: FIRES }).then((p) => { old.value = p; }, () => {}); }, []);
  useEffect(() => {
    if (!live.value) return undefined;
    let gone = false;
    const timer = setTimeout(async () => {
      try {
        const p = await call("cron.preview", { ...JSON.parse(asked), count: FIRES });
        if (!gone) { good.value = { ...p, asked }; bad.value = ""; }
      } catch (e) { if (!gone) bad.value = e.message; }
    }, WAIT);
    return () => { gone = true; clearTimeout(timer); };
  }, [asked, live.value]);
  const p = good.value, fires = (/** @type {wire.PreviewFire[]} */ list, /** @type {string} */ zone) => list.map((f) => html`<li key=${f.scheduledForMs}>${inZone(f.fireAtMs, zone)}</li>`);
  const kinds = [...new Set((p?.affected ?? []).map((a) => a.kind))];
  return html`<div id="preview" class=${p?.asked === asked ? "" : "old"} aria-live="polite">${bad.value && html`<p class="fault">${plain(bad.value)}</p>`}
    ${p && html`<p class="quiet">${p.fires.length > 0 ? `Next, in ${p.timezone}; the first in ${span(Math.max(0, p.fires[0].fireAtMs - now.value))}` : "It never fires."}</p><div class="line"><ol class="fires">${fires(p.fires, p.timezone)}</ol>
      ${old.value && html`<div><p class="quiet">Before</p><ol class="fires">${fires(old.value.fires, old.value.timezone)}</ol></div>`}</div>
      ${p.warnings.map((w) => html`<p key=${w}><${Mark} kind="warn">${plain(w)}<//></p>`)}
      ${p.affected.length > 0 && html`<h3>Clock changes</h3><ul class="changes">${p.affected.map((a) => html`<li key=${a.atMs}><${Mark} kind="warn">${plain(a.text)}<//></li>`)}</ul>`}
      ${kinds.map((kind) => { const name = kind === "gap" ? "gap" : "fold", rule = p?.affected.find((a) => a.kind === kind)?.rule;
        return html`<fieldset key=${kind}><legend>${kind === "gap" ? "A time that does not exist" : "A time that comes twice"}</legend>${POLICIES[name].map((v) => html`<label key=${v}><input type="radio" name=${name} value=${v} checked=${v === (d[name] || rule)} onChange=${set(name)}/> ${RULES[v]}</label>`)}</fieldset>`; })}`}</div>`;
}

// Conflict shows the changes to be saved beside those that another person has saved meanwhile.
/** @param {{mine: Record<string, any>, theirs: wire.Job, keep: () => void, take: () => void}} props */
function Conflict({ mine, theirs, keep, take }) {
  const other = members(draftOf(theirs), theirs.payload), show = (/** @type {any} */ v) => plain(v === null || v === undefined ? "–" : v.message ?? v.text ?? (v.kind === "every" ? `every ${span(v.everyMs)}` : v.kind ? `${v.expr ?? v.at} ${v.tz ?? ""}` : typeof v === "string" ? v : JSON.stringify(v)));
  return html`<section class="needs warn" id="conflict" role="alert"><h2>The job has changed since you opened it</h2>
    <table class="rows" aria-label="Both versions"><thead><tr><th scope="col">Field</th><th scope="col">Yours</th><th scope="col">Saved meanwhile</th></tr></thead>
      <tbody>${Object.keys(mine).map((k) => html`<tr key=${k}><td data-head="Field"><div>${k}</div></td><td data-head="Yours"><div>${show(mine[k])}</div></td><td data-head="Saved meanwhile"><div>${show(other[k])}</div></td></tr>`)}</tbody></table>
    <div class="buttons"><button type="button" id="keep" onClick=${keep}>Go on with yours</button><button type="button" id="take" onClick=${take}>Take the saved one</button></div></section>`;
}
