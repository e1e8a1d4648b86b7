// Questions of agents: the requested action, how long it waits, and the answers as buttons.

import { answer, answered, may, now, questions } from "../store.js";
import { html, useEffect } from "../ui/html.js";
import { Act, Mark } from "../ui/parts.js";
import { ago, plain, span } from "../ui/text.js";

// openIn returns the open questions of a session.
/** @param {string} session */
export const openIn = (session) => (questions.data.value ?? []).filter((q) => q.sessionKey === session && q.expiresAtMs > Date.now());

// Questions shows the questions of one conversation, and the effect of the last answer.
/** @param {{session: string}} props */
export function Questions({ session }) {
  useEffect(() => () => { answered.value = null; }, []);
  const list = now.value > 0 ? openIn(session) : []; // a question ends by the clock
  const done = answered.value?.session === session && answered.value.text;
  return html`${list.map((q) => html`<${Question} key=${q.id} q=${q}/>`)}<p class="note" role="status">${done && plain(done)}</p>`;
}

/** @param {{q: wire.Question}} props */
function Question({ q }) {
  return html`<section class="question" aria-label="Question of the agent">
    <p><${Mark} kind="waiting">The agent ${plain(q.agentId)} asks before it does this:<//> <span class="text">${plain(q.act ?? q.text)}</span></p>
    ${q.act && html`<details class="call"><summary>Details</summary><pre tabindex="0">${plain(q.text)}</pre></details>`}
    <p class="quiet">Asked ${ago(q.askedAtMs, now.value)}, ${span(Math.max(0, q.expiresAtMs - now.value))} left. Without an answer it is not done.</p>
    <${Answers} q=${q}/></section>`;
}

// Answers shows the options of a question to the person who may answer it.
/** @param {{q: wire.Question}} props */
export function Answers({ q }) {
  if (!q.mine) return html`<p class="quiet">${plain(q.principal)} is asked.</p>`;
  return may("write") && html`<p class="buttons answers">${q.options.map((o, i) => html`<${Act} key=${i} class=${o.allow ? "" : "danger"} run=${() => answer(q, i + 1)}>${plain(o.label)}<//>`)}</p>`;
}
