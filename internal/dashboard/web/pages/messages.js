// The messages of a conversation: each as a bubble, tool calls folded, and waiting messages below them.

import { PAGE } from "../conversation.js";
import { call, knows, live, may, now, route } from "../store.js";
import { html, useEffect, useLayoutEffect, useRef, useSignal, useSignalEffect } from "../ui/html.js";
import { Act, Mark } from "../ui/parts.js";
import { Prose } from "../ui/prose.js";
import { clock, moment, plain, span, took } from "../ui/text.js";
import { Files, made } from "./files.js";
import { Questions, openIn } from "./questions.js";

const CUT = 16384; // characters shown of a call

// address returns the address of a conversation, or of a message in it by number. of is an earlier transcript of the session.
/** @param {string} key */
export const address = (key, at = 0, of = "") => `#/chat/${encodeURIComponent(key)}${at ? `?at=${at}` : ""}${of ? `&of=${encodeURIComponent(of)}` : ""}`;

// Log scrolls with the conversation, unless the reader has scrolled up or opened a link to one message.
/** @param {{talk: page.Conversation}} props */
export function Log({ talk }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), following = useRef(talk.at === 0), shown = useRef(false);
  const down = () => { if (following.current && box.current) box.current.scrollTop = box.current.scrollHeight; };
  const rows = talk.messages.value, hit = talk.at === 0 ? undefined : rows.find((m) => m.seq === talk.at);
  useLayoutEffect(() => {
    if (hit && !shown.current) { shown.current = true; box.current?.querySelector(".hit")?.scrollIntoView({ block: "center" }); }
    down();
  });
  useEffect(() => { const sizes = new ResizeObserver(down); if (box.current) sizes.observe(box.current); return () => sizes.disconnect(); }, []);
  useSignalEffect(() => { for (const m of talk.messages.value) m.text.value; queueMicrotask(down); requestAnimationFrame(down); });
  const scrolled = (/** @type {{currentTarget: HTMLElement}} */ e) => { const n = e.currentTarget; following.current = talk.newer.value === 0 && n.scrollHeight - n.scrollTop - n.clientHeight < 80; };
  // still keeps the visible message in place while other messages are added around it.
  const still = (/** @type {"first" | "last"} */ which, /** @type {() => Promise<void>} */ read) => async () => {
    const bubbles = [...box.current?.querySelectorAll(".bubble") ?? []], anchor = which === "first" ? bubbles[0] : bubbles.at(-1);
    const top = anchor?.getBoundingClientRect().top ?? 0;
    following.current = false;
    await read();
    requestAnimationFrame(() => { if (anchor?.isConnected && box.current) box.current.scrollTop += anchor.getBoundingClientRect().top - top; });
  };
  const end = async () => { following.current = true; await talk.toEnd(); };
  const hidden = talk.hidden.value, newer = talk.newer.value, seen = new Set(rows.filter((m) => m.tools?.value.length).map((m) => m.run));
  const open = openIn(talk.key);
  // An open question is shown with its buttons instead of its line in the transcript.
  const asks = (/** @type {page.Message} */ m) => m.seq !== undefined && open.some((q) => new RegExp(`\\nWrite /.*(allow|deny|answer) ${q.id}`).test(m.text.peek()));
  return html`<div class="log" role="log" aria-label="Messages" tabindex="0" ref=${box} onScroll=${scrolled}>
    ${talk.fault.value && html`<p class="fault" role="alert">${plain(talk.fault.value)}</p>`}
    ${hidden > 0 && html`<p class="empty"><${Act} id="older" run=${still("first", () => talk.older())}>${hidden} earlier ${hidden === 1 ? "message" : "messages"}: show ${Math.min(PAGE, hidden)}<//></p>`}
    ${talk.loaded.value && talk.at > 0 && !hit && newer > 0 && html`<p class="empty">The message ${talk.at} is not in this conversation any more.</p>`}
    ${rows.filter((m) => !(m.tool && seen.has(m.run)) && !asks(m)).map((m) => html`<${Message} key=${m.id} m=${m} talk=${talk} hit=${m === hit}/>`)}
    ${newer > 0 && html`<p class="empty buttons"><${Act} id="later" run=${still("last", () => talk.later())}>${newer} later ${newer === 1 ? "message" : "messages"}: show ${Math.min(PAGE, newer)}<//><${Act} id="newest" run=${end}>To the newest<//></p>`}
    ${!talk.loaded.value && !talk.fault.value && html`<p class="empty">${live.value ? "Reading the messages …" : "The messages are read when the gateway answers."}</p>`}
    ${talk.loaded.value && rows.length === 0 && html`<p class="empty">No messages yet. Write one below.</p>`}
    ${!talk.kept && html`<${Questions} session=${talk.key}/>`}
    ${newer === 0 && html`<${Waiting} talk=${talk}/>`}</div>`;
}

// An answer is plain text while it is streamed and is rendered as Markdown at its end.
/** @param {{m: page.Message, talk: page.Conversation, hit: boolean}} props */
function Message({ m, talk, hit }) {
  const text = m.role === "assistant" && !m.growing ? made(m.text.value).text : m.text.value, tools = m.tools?.value ?? [];
  const kind = m.tool ? "tool" : `${m.role}${m.command ? " command" : ""}${m.growing ? " growing" : ""}`;
  return html`<article class=${`bubble ${kind}${hit ? " hit" : ""}`} aria-busy=${m.growing ? "true" : undefined} aria-current=${hit ? "true" : undefined}>
    ${tools.map((t) => html`<${Call} key=${t.id} call=${t}/>`)}
    ${m.tool ? html`<${Kept} text=${text}/>` : (text || !tools.length || m.growing) && html`<div class="text" dir="auto">${m.growing ? plain(text) : m.role === "system" ? html`${m.bad && html`<${Mark} kind="error"/>`}${plain(text)}` : html`<${Prose} text=${text}/>`}</div>`}
    ${m.more && html`<${Rest} m=${m} talk=${talk}/>`}<${Files} message=${m}/>
    <span class="foot">${m.growing && html`<${Mark} kind="running">${span(Math.max(0, now.value - (m.from ?? 0)))}${text || tools.length ? "" : ", its text comes"}<//>`}
      ${m.origin && (m.origin.jobId ? html`<a class="note" href=${`#/jobs/${encodeURIComponent(m.origin.jobId)}`}>${plain(m.origin.who)}</a>` : html`<span class="note">${plain(m.origin.who)}</span>`)}
      ${m.note && html`<span class=${m.bad ? "note bad" : "note"}>${m.bad && html`<${Mark} kind="error"/>`}${plain(m.note)}</span>`}
      ${m.seq && !m.tool && html`<a class="at" href=${address(talk.key, m.seq, route.value.query.get("of") ?? "")} title=${`${moment(m.at ?? 0)}, message ${m.seq}`}>${clock(m.at ?? 0)}</a>`}
      ${m.seq && !m.tool && !m.command && m.role !== "system" && !talk.kept && html`<button type="button" class="link-like" onClick=${() => { talk.answering.value = m; /** @type {HTMLElement | null} */ (document.querySelector(".compose textarea"))?.focus(); }}>Reply</button>`}
      ${m.run && m.seq && !m.tool && m.role !== "user" && knows("runs.list") && html`<${Cost} session=${talk.key} run=${m.run}/>`}</span></article>`;
}

// Rest reads what a long message has after its beginning, piece by piece.
/** @param {{m: page.Message, talk: page.Conversation}} props */
function Rest({ m, talk }) {
  const texts = useSignal(/** @type {string[]} */ ([])), next = useSignal(m.more);
  const read = async () => {
    const more = await talk.rest(m.seq ?? 0, next.value ?? 0);
    texts.value = [...texts.value, more?.content[0]?.text ?? ""];
    next.value = more?.nextChar;
  };
  return html`${texts.value.map((text, i) => html`<div class="text" dir="auto" key=${i}><${Prose} text=${text}/></div>`)}${next.value && html`<p class="buttons" key="next"><${Act} run=${read}>Show the rest<//></p>`}`;
}

const written = (/** @type {unknown} */ value) => { const text = plain(typeof value === "string" ? value : JSON.stringify(value, null, 2)); return text.length > CUT ? `${text.slice(0, CUT)} … cut at 16 KB` : text; };

// Call is one tool call: a line that can be expanded.
/** @param {{call: page.ToolCall}} props */
function Call({ call }) {
  const kind = call.ms === undefined ? "running" : call.bad ? "error" : "ok";
  return html`<details class="call"><summary><${Mark} kind=${kind}>${plain(call.name)}<//> <span class="quiet">${call.ms === undefined ? span(Math.max(0, now.value - call.from)) : `${(call.ms / 1000).toFixed(1)} s`}</span></summary>
    ${call.args !== undefined && html`<span class="quiet">Arguments</span><pre tabindex="0">${written(call.args)}</pre>`}
    ${call.result !== undefined && html`<span class="quiet">${call.bad ? "Failed" : "Result"}</span><pre tabindex="0">${written(call.result)}</pre>`}</details>`;
}

const NEWEST = 200; // how many runs of a session are searched for the run of an answer

// Cost shows the tokens and the times of an answer. It is read when it is opened, because the transcript has neither.
/** @param {{session: string, run: string}} props */
function Cost({ session, run }) {
  const text = useSignal("");
  const read = async (/** @type {{currentTarget: HTMLDetailsElement}} */ { currentTarget: box }) => {
    if (!box.open || text.value) return;
    try {
      const r = (await call("runs.list", { sessionKey: session, state: "ended", limit: NEWEST })).runs.find((one) => one.runId === run);
      const used = r?.usage, began = r?.startedAt ?? r?.endedAt ?? 0;
      text.value = !r ? "This run is not among the last ones." : [
        used ? `${used.inputTokens.toLocaleString()} tokens in, ${used.outputTokens.toLocaleString()} out` : "the agent has reported no tokens", r.model, `waited ${took(began - r.acceptedAt)}`, r.endedAt && `ran ${took(r.endedAt - began)}`,
        r.attempt > 1 && `attempt ${r.attempt}`, r.outcome !== "answered" && r.outcome].filter(Boolean).join(" · ");
    } catch (e) { text.value = e.message; }
  };
  return html`<details class="cost" onToggle=${read}><summary>Cost</summary><span role="status">${plain(text.value)}</span></details>`;
}

// Kept is a call from the transcript: its name, then its arguments and its result, shortened.
/** @param {{text: string}} props */
function Kept({ text }) {
  const [, name, rest] = /^Tool (\S+) ?([\s\S]*)$/.exec(text) ?? [null, "tool", text];
  return html`<details class="call"><summary><${Mark} kind=${/: refused: /.test(rest) ? "error" : "ok"}>${plain(name)}<//></summary><pre tabindex="0">${written(rest)}</pre></details>`;
}

/** @param {{talk: page.Conversation}} props */
function Waiting({ talk }) {
  const { items, total } = talk.waiting.value;
  if (total === 0) return null;
  return html`<section class="queue" aria-label="Waiting messages"><h3>Waiting: ${total}</h3>
    <ol>${items.map((w) => html`<li key=${w.runId}><span class="ellipsis">${plain(w.message.content.map((c) => c.text).join(""))}</span> <span class="quiet">${span(Math.max(0, now.value - w.acceptedAt))}</span>
      ${may("write") && html`<${Act} run=${() => talk.stop({ runId: w.runId })}>Cancel<//>`}</li>`)}</ol>
    ${total > items.length && html`<p class="quiet">and ${total - items.length} more</p>`}</section>`;
}
