// The latest outcomes of a job, and their summary.

import { html } from "./html.js";
import { SHAPES, colourOf } from "./parts.js";
import { inZone, plain, span } from "./text.js";

/** @param {wire.JobOutcome} o */
const took = (o) => (o.durationMs ? `, took ${span(o.durationMs)}` : "");

// Strip shows outcomes from the oldest to the newest: a shape for each, and one sentence for screen readers.
/** @param {{outcomes?: wire.JobOutcome[], zone?: string}} props */
export function Strip({ outcomes = [], zone }) {
  if (outcomes.length === 0) return html`<span class="quiet">none</span>`;
  const counts = new Map();
  for (const o of outcomes) counts.set(o.outcome, (counts.get(o.outcome) ?? 0) + 1);
  return html`<span class="strip" aria-hidden="true">${outcomes.toReversed().map((o) => html`<span key=${o.slotMs} class=${`shape ${colourOf(o.outcome)}`}
    title=${`${o.outcome}${o.reason ? `: ${plain(o.reason)}` : ""}, ${inZone(o.slotMs, zone)}${took(o)}`}>${SHAPES[o.outcome]}</span>`)}</span>
    <span class="only-read">The last ${outcomes.length}: ${[...counts].map(([word, n]) => `${n} ${word}`).join(", ")}. The newest: ${outcomes[0].outcome}.</span>`;
}

// streak returns how many runs in a row have failed or succeeded.
/** @param {wire.Job} j @param {number} most */
export function streak(j, most) {
  const failed = j.state?.consecutiveErrors ?? 0, outcomes = j.outcomes ?? [];
  if (failed > 0) return `${failed} failed`;
  const at = outcomes.findIndex((o) => o.outcome !== "ok"), ok = at < 0 ? outcomes.length : at;
  return ok === 0 ? "–" : `${ok}${ok === most ? " or more" : ""} ok`;
}

// middle returns the median duration of the outcomes in ms, or undefined if none of them ran.
/** @param {wire.JobOutcome[]} [outcomes] */
export function middle(outcomes = []) {
  const took = outcomes.map((o) => o.durationMs ?? 0).filter((ms) => ms > 0).sort((a, b) => a - b);
  return took[Math.floor((took.length - 1) / 2)];
}
