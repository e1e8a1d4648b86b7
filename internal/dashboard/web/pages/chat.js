// Chat: sessions at the left, the conversation at the right, answers as they grow.

import { Conversation } from "../conversation.js";
import { fault, live, may, me, now, people, route, search, sessions } from "../store.js";
import { html, useEffect, useLayoutEffect, useRef, useSignal, useSignalEffect } from "../ui/html.js";
import { Act, Loading, Mark, useHeldOrder } from "../ui/parts.js";
import { prose } from "../ui/prose.js";
import { ago, moment, plain } from "../ui/text.js";
import { Chips, Files, choose, upload } from "./files.js";

export function Chat() {
  useEffect(() => {
    const ends = [sessions, people].map((r) => r.use());
    return () => ends.forEach((end) => end());
  }, []);
  const chosen = route.value.rest[0];
  const key = chosen || me.value.mainKey;
  return html`<div class=${`split${chosen ? " opened" : ""}`}><${List} current=${key}/><${Talk} key=${key} session=${key}/></div>`;
}

// People are shown by their names, which an operator may read.
function label(key) {
  const name = key.split(":").slice(2).join(":") || key;
  const g = (people.data.value?.granted ?? []).find((one) => `${one.channel}:direct:${one.senderId}` === name);
  return plain(g ? `${g.senderLabel} · ${g.channelLabel}` : name);
}

const address = (key) => `#/chat/${encodeURIComponent(key)}`;

function List({ current }) {
  const rows = sessions.data.value;
  const held = useHeldOrder(rows ?? [], (s) => s.key);
  const typed = (e) => { search.value = e.target.value.trim(); sessions.readLater(250); };
  const fresh = () => { location.hash = address(`agent:${current.split(":")[1]}:chat-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`); };
  return html`<section class="side" aria-label="Sessions">
    <div class="find"><input type="search" placeholder="Search sessions" aria-label="Search sessions" value=${search.value} onInput=${typed}/>${may("write") && html`<button type="button" onClick=${fresh}>New</button>`}</div>
    ${held.moved > 0 && html`<button type="button" class="resort" onClick=${held.sort}>The order has changed: sort again</button>`}
    <${Loading} of=${sessions} what="the sessions"/>
    <ul class="list" ref=${held.box}>${held.shown.map((s) => html`<li key=${s.key}><a class="item" href=${address(s.key)} aria-current=${s.key === current ? "true" : undefined} title=${s.key}>
      <span class="top"><span class="name ellipsis">${label(s.key)}</span>${state(s)}</span>
      <span class="quiet ellipsis">${plain(s.lastMessagePreview) || "no answer yet"}</span>
      <span class="quiet">${plain(s.agentId)} · ${ago(s.updatedAt, now.value)}</span></a></li>`)}
      ${rows?.length === 0 && html`<li class="empty">${search.value ? "No session has this." : "No sessions yet. Send a message."}</li>`}</ul></section>`;
}

function state(s) {
  if (s.hasActiveRun) return html`<${Mark} kind="running">working${s.queueDepth ? ` + ${s.queueDepth}` : ""}<//>`;
  if (s.queueDepth) return html`<${Mark} kind="waiting">${s.queueDepth} waiting<//>`;
  return s.status === "failed" || s.status === "timeout" ? html`<${Mark} kind="error">${s.status}<//>` : null;
}

function Talk({ session }) {
  const talk = useSignal(new Conversation(session)).value;
  useEffect(talk.follow, []);
  const files = useSignal([]);
  const add = (list) => choose(files, list, (why) => { fault.value = why; });
  const dropped = (e) => { e.preventDefault(); if (may("write")) add(e.dataTransfer.files); };
  const mine = (sessions.data.value ?? []).find((s) => s.key === session);
  const busy = mine?.hasActiveRun || talk.messages.value.some((m) => m.growing);
  return html`<section class="talk" aria-label="Conversation" onDragOver=${(e) => e.preventDefault()} onDrop=${dropped}>
    <div class="head"><a class="back" href="#/chat" aria-label="All sessions">‹</a><h2 class="ellipsis" title=${session}>${label(session)}</h2>
      <span class="quiet ellipsis">${mine ? `lane ${mine.lane} · mode ${mine.effectiveQueueMode}${mine.queueDepth ? ` · ${mine.queueDepth} waiting` : ""}` : "new"}</span>
      ${busy && may("write") && html`<${Act} class="danger" id="stop" run=${talk.stop}>Stop<//>`}</div>
    <${Log} talk=${talk}/>
    ${may("write") ? html`<${Composer} talk=${talk} files=${files} add=${add}/>` : html`<p class="compose quiet">This token may only read.</p>`}</section>`;
}

// Log follows the conversation, unless the reader has scrolled up.
function Log({ talk }) {
  const box = useRef(null), following = useRef(true);
  const down = () => { if (following.current && box.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(down);
  useSignalEffect(() => { for (const m of talk.messages.value) m.text.value; queueMicrotask(down); requestAnimationFrame(down); });
  const scrolled = (e) => { const n = e.currentTarget; following.current = n.scrollHeight - n.scrollTop - n.clientHeight < 80; };
  const rows = talk.messages.value;
  return html`<div class="log" role="log" aria-label="Messages" tabindex="0" ref=${box} onScroll=${scrolled}>
    ${talk.fault.value && html`<p class="fault" role="alert">${talk.fault.value}</p>`}
    ${talk.hidden.value > 0 && html`<p class="empty"><${Act} run=${() => talk.older()}>${talk.hidden.value} earlier messages: show 50<//></p>`}
    ${rows.map((m) => html`<${Message} key=${m.id} m=${m}/>`)}
    ${!talk.loaded.value && !talk.fault.value && html`<p class="empty">${live.value ? "Reading the messages …" : "The messages are read when the gateway answers."}</p>`}
    ${talk.loaded.value && rows.length === 0 && html`<p class="empty">No messages yet. Write one below.</p>`}</div>`;
}

// An answer is plain text while it grows and becomes Markdown at its end.
function Message({ m }) {
  const text = m.text.value;
  return html`<article class=${`bubble ${m.role}${m.command ? " command" : ""}${m.growing ? " growing" : ""}`} aria-busy=${m.growing ? "true" : undefined} title=${m.at ? moment(m.at) : undefined}>
    <div class="text">${m.growing ? plain(text) : prose(text)}</div><${Files} message=${m}/>
    ${m.note && html`<span class=${m.bad ? "note bad" : "note"}>${plain(m.note)}</span>`}</article>`;
}

function Composer({ talk, files, add }) {
  const text = useSignal(""), input = useRef(null), box = useRef(null);
  const send = () => {
    const taken = files.value;
    const line = text.value.trim() ? text.value : taken.map((f) => f.name).join(", ");
    if (!line || !live.value) return;
    text.value = "";
    files.value = [];
    fault.value = "";
    talk.send(line, taken, upload);
    box.current.focus();
  };
  const key = (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } };
  const pasted = (e) => { if (e.clipboardData.files.length > 0) { e.preventDefault(); add(e.clipboardData.files); } };
  return html`<div class="compose"><${Chips} chosen=${files}/>
    <input type="file" multiple hidden ref=${input} onChange=${() => { add(input.current.files); input.current.value = ""; }}/>
    <button type="button" aria-label="Attach files" title="Attach files" onClick=${() => input.current.click()}>+</button>
    <textarea ref=${box} rows=${Math.min(8, text.value.split("\n").length)} placeholder="Message" aria-label="Message" title="Enter sends, Shift+Enter breaks the line"
      value=${text.value} onInput=${(e) => { text.value = e.target.value; }} onKeyDown=${key} onPaste=${pasted}></textarea>
    <button type="button" class="primary" id="send" onClick=${send} aria-disabled=${live.value ? undefined : "true"}>Send</button></div>`;
}
