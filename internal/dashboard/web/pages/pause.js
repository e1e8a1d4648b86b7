// The dialog that pauses a job: why, until when, and what happens meanwhile.

import { pause } from "../jobs.js";
import { fault, now } from "../store.js";
import { html, useRef, useSignal } from "../ui/html.js";
import { Act, Dialog } from "../ui/parts.js";
import { near, plain } from "../ui/text.js";

const HOUR = 3600000;

// The offered ends of a pause, each computed from the present time.
const ENDS = new Map(/** @type {[string, [string, (at: number) => number]][]} */ ([["resumed", ["until it is resumed", () => 0]], ["hour", ["for an hour", (at) => at + HOUR]], ["day", ["for a day", (at) => at + 24 * HOUR]], ["week", ["for a week", (at) => at + 168 * HOUR]], ["date", ["until a date", () => NaN]]]));

/** @param {{job: wire.Job, close: () => void}} props */
export function Pause({ job, close }) {
  const note = useRef(/** @type {HTMLInputElement | null} */ (null)), end = useSignal("resumed"), date = useSignal(""), bad = useSignal("");
  const until = end.value === "date" ? new Date(date.value).getTime() : ENDS.get(end.value)?.[1](now.value) ?? 0;
  const save = async () => {
    const text = note.current?.value.trim() ?? "";
    bad.value = !text ? "Write why, for those who find the job paused." : Number.isNaN(until) || (until && until <= now.value) ? "Choose a time that is ahead." : "";
    if (bad.value) return;
    try {
      await pause(job, text, until);
      close();
    } catch (e) { bad.value = e.message; }
  };
  return html`<${Dialog} title=${`Pause ${plain(job.displayName || job.name)}`} onClose=${close}>
    <label>Why <input id="note" ref=${note} maxlength="500" required aria-invalid=${bad.value ? "true" : undefined} aria-describedby="pause-fault" onKeyDown=${(/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") save(); }}/></label>
    <label>Until <select id="until" value=${end.value} onChange=${(/** @type {page.Input} */ e) => { end.value = e.target.value; }}>${[...ENDS].map(([name, [words]]) => html`<option key=${name} value=${name}>${words}</option>`)}</select></label>
    ${end.value === "date" && html`<label>Date, in your time <input id="date" type="datetime-local" value=${date.value} onInput=${(/** @type {page.Input} */ e) => { date.value = e.target.value; }}/></label>`}
    <p class="quiet">Slots meanwhile do not run and are not made up for. ${until > 0 ? `It fires again from ${near(until, job.schedule.tz, now.value)} on${job.schedule.tz ? ` (${job.schedule.tz})` : ""}.` : "It fires again when it is resumed."} A run that is active goes on.</p>
    <p id="pause-fault" class="fault" role="alert">${plain(bad.value || fault.value)}</p>
    <div class="buttons"><${Act} id="sure" class="primary" run=${save}>Pause<//><button type="button" onClick=${close}>Cancel</button></div><//>`;
}
