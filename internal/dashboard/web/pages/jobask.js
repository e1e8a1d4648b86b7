// The dialogs before an active job is run, before a job is deleted and before a past slot is run, and the job as a command. Loaded on demand.

import { beyond, commandOf } from "../jobdraft.js";
import { backfill, named, remove, run } from "../jobs.js";
import { fault, now } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Dialog } from "../ui/parts.js";
import { inZone, plain } from "../ui/text.js";

const RECENT = 7 * 86400000; // to delete a job that ran within this time, the person must type its name

// Ask shows one of the dialogs for a job that was read with all members.
/** @param {{kind: Exclude<page.Asked, "pause">, job: wire.Job, slot?: number, close: () => void}} props */
export function Ask({ kind, ...props }) {
  return html`<${{ run: RunAgain, remove: Remove, command: Command, backfill: Backfill }[kind]} ...${props}/>`;
}

// effectOf describes what a manual run does while another run of the job is active; starts is whether a run will start.
/** @param {wire.Job} j */
function effectOf(j) {
  const shared = j.sessionTarget !== "isolated", waits = "The new run waits until the active one has ended.";
  if (j.overlap === "skip") return { starts: false, text: "The job allows no second run, so none would start. Stop the active run first." };
  if (j.overlap === "buffer_one") return (j.queuedRuns ?? 0) > 1 ? { starts: false, text: "A run of the job waits already, and the job keeps one. Stop one of them first." } : { starts: true, text: waits };
  return { starts: true, text: shared ? `${waits} Both use the session ${j.sessionTarget}.` : "The new run starts beside the active one. A run by hand cancels no other." };
}

/** @param {{job: wire.Job, close: () => void}} props */
function RunAgain({ job: j, close }) {
  const { starts, text } = effectOf(j);
  return html`<${Dialog} title=${`Run ${plain(named(j))} again?`} onClose=${close}><p>It has ${(j.queuedRuns ?? 0) > 1 ? `${j.queuedRuns} runs that wait or run` : "a run that waits or runs"}. ${plain(text)}</p>
    <p class="fault" role="alert">${plain(fault.value)}</p>
    <div class="buttons">${starts && html`<${Act} id="sure" class="primary" run=${async () => { await run(j); close(); }}>Run now<//>`}<button type="button" autofocus=${!starts} onClick=${close}>${starts ? "Cancel" : "Close"}</button></div><//>`;
}

/** @param {{job: wire.Job, close: () => void}} props */
function Remove({ job: j, close }) {
  const name = named(j), recent = (j.lastRunAtMs ?? 0) > now.value - RECENT, typed = useRef(/** @type {HTMLInputElement | null} */ (null)), bad = useSignal("");
  const sure = async () => {
    bad.value = recent && typed.current?.value.trim() !== name.trim() ? "This is not the name of the job." : "";
    if (bad.value) { typed.current?.focus(); return; }
    try { await remove(j); close(); } catch (e) { bad.value = e.message; }
  };
  return html`<${Dialog} title=${`Delete ${plain(name)}?`} onClose=${close}><ul><li>It does not fire again. A run that is active ends as usual, and one that waits does not start.</li><li>Its history is kept.</li>
      <li>${j.invalid ? "It cannot be taken back, because the stored job cannot be understood." : "For 10 seconds it can be taken back."}</li></ul>
    ${recent && html`<label>It ran within 7 days. Write its name: ${plain(name)} <input id="typed" ref=${typed} autocomplete="off" spellcheck="false" aria-invalid=${bad.value ? "true" : undefined} aria-describedby="delete-fault" onKeyDown=${(/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") sure(); }}/></label>`}
    <p id="delete-fault" class="fault" role="alert">${plain(bad.value)}</p>
    <div class="buttons"><${Act} id="sure" class="danger" run=${sure}>Delete<//><button type="button" onClick=${close}>Keep it</button></div><//>`;
}

// Backfill shows whether the slot has a run already: a successful run is not repeated.
/** @param {{job: wire.Job, slot: number, close: () => void}} props */
function Backfill({ job: j, slot, close }) {
  const found = useSignal(/** @type {wire.BackfillFire[] | undefined} */ (undefined)), bad = useSignal("");
  useEffect(() => { backfill(j, slot, true).then((r) => { found.value = r.fires; }, (e) => { bad.value = e.message; }); }, []);
  const fire = found.value?.[0], runs = fire?.action === "enqueue";
  const sure = async () => { try { await backfill(j, slot); close(); } catch (e) { bad.value = e.message; } };
  return html`<${Dialog} title=${`Run this slot of ${plain(named(j))}?`} onClose=${close}>
    <p role="status">${!found.value ? "Reading the slot …" : !fire ? "The schedule has no such slot now." : runs ? `One run of the slot ${inZone(slot, j.schedule.tz)} starts now.` : `The slot ${inZone(slot, j.schedule.tz)} has a run; none would start.`}</p>
    <p class="fault" role="alert">${plain(bad.value)}</p>
    <div class="buttons">${runs && html`<${Act} id="sure" class="primary" run=${sure}>Run 1 slot<//>`}<button type="button" autofocus onClick=${close}>${runs ? "Cancel" : "Close"}</button></div><//>`;
}

/** @param {{job: wire.Job, close: () => void}} props */
function Command({ job: j, close }) {
  const line = commandOf(j), left = beyond(j), copied = useSignal("");
  const copy = () => navigator.clipboard.writeText(line).then(() => { copied.value = "Copied."; });
  return html`<${Dialog} title=${`${plain(named(j))} as a command`} onClose=${close}><p class="command"><code id="command">${plain(line)}</code></p>
    ${left.length > 0 && html`<p class="quiet">No flag has: ${plain(left.join(", "))}. <code>laneway cron export</code> has everything.</p>`}<p class="quiet" role="status">${copied.value}</p>
    <div class="buttons">${navigator.clipboard && html`<${Act} id="copy" class="primary" run=${copy}>Copy<//>`}<button type="button" onClick=${close}>Close</button></div><//>`;
}
