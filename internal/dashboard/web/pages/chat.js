// Chat: sessions at the left, the conversation at the right, answers while they are streamed.

import { Conversation } from "../conversation.js";
import { fault, followTurns, hits, live, may, me, now, people, questions, route, search, sessions } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { Act, Dialog, Loading, Mark, useHeldOrder } from "../ui/parts.js";
import { ago, clock, day, plain, span } from "../ui/text.js";
import { Chips, choose, upload } from "./files.js";
import { Log, address } from "./messages.js";
import { openIn } from "./questions.js";

export function Chat() {
  const chosen = route.value.rest[0];
  const key = chosen || me.value?.mainKey || "", { query } = route.value;
  useEffect(() => followTurns(key), [live.value, key]);
  useEffect(() => {
    const ends = [sessions, people, hits, questions].map((r) => r.use());
    return () => ends.forEach((end) => end());
  }, []);
  const at = Number(query.get("at")) || 0, kept = query.get("of") ?? "";
  return html`<div class=${`split${chosen ? " opened" : ""}`}><${List} current=${key}/><${Talk} key=${`${key} ${at} ${kept}`} session=${key} at=${at} kept=${kept}/></div>`;
}

// People are shown by their names, which an operator may read.
/** @param {string} key */
function label(key) {
  const name = key.split(":").slice(2).join(":") || key;
  const g = (people.data.value?.granted ?? []).find((one) => `${one.channel}:direct:${one.senderId}` === name);
  return plain(g ? `${g.senderLabel} · ${g.channelLabel}` : name);
}

/** @param {{current: string}} props */
function List({ current }) {
  const rows = sessions.data.value;
  const held = useHeldOrder(rows ?? [], (s) => s.key);
  const typed = (/** @type {page.Input} */ e) => { search.value = e.target.value.trim(); sessions.readLater(250); hits.readLater(250); };
  const fresh = () => { location.hash = address(`agent:${current.split(":")[1]}:chat-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`); };
  return html`<section class="side" aria-label="Sessions">
    <div class="find"><input type="search" placeholder="Search" aria-label="Search sessions and messages" value=${search.value} onInput=${typed}/>${may("write") && html`<button type="button" onClick=${fresh}>New</button>`}</div>
    ${held.moved > 0 && html`<button type="button" class="resort" onClick=${held.sort}>The order has changed: sort again</button>`}
    <${Loading} of=${sessions} what="the sessions"/>
    <ul class="list" ref=${held.box}>${held.shown.map((s) => html`<li key=${s.key}><a class="item" href=${address(s.key)} aria-current=${s.key === current ? "true" : undefined} title=${plain(s.key)}>
      <span class="top"><span class="name ellipsis">${label(s.key)}</span>${state(s)}</span>
      <span class="quiet ellipsis">${plain(s.lastMessagePreview) || "no answer yet"}</span>
      <span class="quiet">${plain(s.agentId)} · ${ago(s.updatedAt, now.value)}</span></a></li>`)}
      ${rows?.length === 0 && html`<li class="empty">${search.value ? "No session has this name." : html`No sessions yet. <a href=${address(me.value?.mainKey ?? "")}>Send a message</a>`}</li>`}
      <${Hits}/></ul></section>`;
}

// Hits are messages with the words of the search; each links to its place.
function Hits() {
  const found = hits.data.value;
  if (!search.value || !found) return null;
  if (hits.fault.value) return html`<li class="fault" role="alert">${plain(hits.fault.value)}</li>`;
  return html`<li class="part">${found.hits.length === 0 ? "No message has these words." : `${found.hasMore ? "The newest" : "All"} ${found.hits.length} messages with these words`}</li>
    ${found.hits.map((h) => html`<li key=${`${h.sessionId} ${h.seq}`}><a class="item hit" href=${address(h.sessionKey, h.seq, found.present.get(h.sessionKey) === h.sessionId ? "" : h.sessionId)}>
      <span class="top"><span class="name ellipsis">${label(h.sessionKey)}</span><span class="quiet">${clock(h.timestamp)}</span></span>
      <span class="quiet">${plain(h.excerpt)}</span></a></li>`)}`;
}

/** @param {wire.SessionRow} s */
function state(s) {
  if (openIn(s.key).length > 0) return html`<${Mark} kind="warn">asks<//>`;
  if (s.hasActiveRun) return html`<${Mark} kind="running">working${s.queueDepth ? ` + ${s.queueDepth}` : ""}<//>`;
  if (s.queueDepth) return html`<${Mark} kind="waiting">${s.queueDepth} waiting<//>`;
  return s.status === "failed" || s.status === "timeout" ? html`<${Mark} kind="error">${s.status}<//>` : null;
}

/** @param {{session: string, at: number, kept: string}} props */
function Talk({ session, at, kept }) {
  const talk = useSignal(new Conversation(session, at, kept)).value;
  useEffect(talk.follow, []);
  const files = useSignal(/** @type {File[]} */ ([])), asked = useSignal(""), open = useSignal(false);
  const add = (/** @type {Iterable<File>} */ list) => choose(files, list, (why) => { fault.value = why; });
  const dropped = (/** @type {DragEvent} */ e) => { e.preventDefault(); if (may("write")) add(e.dataTransfer?.files ?? []); };
  const mine = talk.info.value, busy = mine?.hasActiveRun || talk.messages.value.some((m) => m.growing), since = talk.stopping.value;
  const foreign = mine?.channel && !["web", "api"].includes(mine.channel) && !open.value; // a chat of a person on another channel
  const waits = talk.waiting.value.total;
  return html`<section class="talk" aria-label="Conversation" onDragOver=${(/** @type {DragEvent} */ e) => e.preventDefault()} onDrop=${dropped}>
    <div class="head"><a class="back" href="#/chat" aria-label="All sessions">‹</a><div class="about"><h2 class="ellipsis" title=${plain(session)}>${label(session)}</h2><${About} talk=${talk} row=${mine} /></div>
      ${may("write") && !kept && html`<div class="buttons">
        ${busy && html`<${Act} class="danger" id="stop" run=${() => talk.stop()}>${since ? `Stopping since ${span(Math.max(0, now.value - since))}` : "Stop"}<//>`}
        ${(busy || waits > 0) && html`<button type="button" id="stopall" onClick=${() => { asked.value = "stop"; }}>Stop all…</button>`}
        ${mine?.updatedAt && mine.mayReset && html`<button type="button" id="reset" onClick=${() => { asked.value = "reset"; }}>Reset…</button>`}</div>`}</div>
    <${Log} talk=${talk}/>
    ${kept ? html`<p class="compose quiet">An earlier conversation of this session, before a reset. <a href=${address(session)}>The present one</a></p>`
    : !may("write") ? html`<p class="compose quiet">This token may only read.</p>`
    : foreign ? html`<p class="compose"><button type="button" id="intrude" onClick=${() => { open.value = true; }}>Write into this conversation</button> <span class="quiet">The agent takes the text as a message of this chat; its answer stays here.</span></p>`
    : html`<${Composer} talk=${talk} files=${files} add=${add}/>`}
    ${asked.value && html`<${Sure} what=${asked.value} talk=${talk} waits=${waits} busy=${busy} done=${() => { asked.value = ""; }}/>`}</section>`;
}

/** @param {{talk: page.Conversation, row: wire.SessionRow | null}} props */
function About({ talk, row }) {
  if (!row) return null;
  const parts = row.updatedAt ? [row.createdAt && `since ${day(row.createdAt)}`, row.totalTokens && `${row.totalTokens.toLocaleString()} tokens`, `agent ${plain(row.agentId)}`, `lane ${plain(row.lane)}`, `mode ${row.effectiveQueueMode}`] : ["new"];
  return html`<span class="quiet ellipsis" title=${plain(talk.key)}>${parts.filter(Boolean).join(" · ")}</span>`;
}

// Sure lists what will happen before an action that cannot be undone.
/** @param {{what: string, talk: page.Conversation, waits: number, busy: boolean, done: () => void}} props */
function Sure({ what, talk, waits, busy, done }) {
  const stop = what === "stop";
  const act = async () => { done(); await (stop ? talk.stop({ all: true }) : talk.reset()); };
  return html`<${Dialog} title=${stop ? "Stop all?" : "Reset this conversation?"} onClose=${done}>
    <ul>${busy && html`<li>The running turn is stopped; its text so far stays.</li>`}
      ${waits > 0 && html`<li>${waits} waiting ${waits === 1 ? "message is" : "messages are"} dropped.</li>`}
      ${!stop && html`<li>The agent starts again, without the conversation so far.</li><li>The messages stay in the store, and search still finds them.</li>`}
      <li>This cannot be undone.</li></ul>
    <p class="buttons"><${Act} class="danger" id="sure" run=${act}>${stop ? "Stop all" : "Reset"}<//><button type="button" onClick=${done}>Keep it</button></p><//>`;
}

/** @param {{talk: page.Conversation, files: page.Signal<File[]>, add: (list: Iterable<File>) => void}} props */
function Composer({ talk, files, add }) {
  const text = useSignal(""), input = useRef(/** @type {HTMLInputElement | null} */ (null)), box = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const send = () => {
    const taken = files.value;
    const line = text.value.trim() ? text.value : taken.map((f) => f.name).join(", ");
    if (!line || !live.value) return;
    text.value = "";
    files.value = [];
    fault.value = "";
    talk.send(line, taken, upload);
    box.current?.focus();
  };
  const key = (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } };
  const pasted = (/** @type {ClipboardEvent} */ e) => { if (e.clipboardData?.files.length) { e.preventDefault(); add(e.clipboardData.files); } };
  const chosen = (/** @type {{currentTarget: HTMLInputElement}} */ { currentTarget: i }) => { add(i.files ?? []); i.value = ""; };
  const answered = talk.answering.value;
  return html`<div class="compose">${answered && html`<p class="chips"><span class="ellipsis" dir="auto">Reply to: ${plain(answered.text.peek().slice(0, 120))}</span> <button type="button" class="link-like" onClick=${() => { talk.answering.value = undefined; }}>Cancel the reply</button></p>`}<${Chips} chosen=${files}/>
    <input type="file" multiple hidden ref=${input} onChange=${chosen}/>
    <button type="button" aria-label="Attach files" title="Attach files" onClick=${() => input.current?.click()}>+</button>
    <textarea ref=${box} rows=${Math.min(8, text.value.split("\n").length)} placeholder="Message" aria-label="Message" title="Enter sends, Shift+Enter breaks the line"
      value=${text.value} onInput=${(/** @type {page.Input} */ e) => { text.value = e.target.value; }} onKeyDown=${key} onPaste=${pasted}></textarea>
    <button type="button" class="primary" id="send" onClick=${send} aria-disabled=${live.value ? undefined : "true"}>Send</button></div>`;
}
