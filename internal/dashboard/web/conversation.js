// One conversation: a part of its transcript, waiting messages, messages being sent, and answers while they are streamed.

import { NotConfirmed } from "./rpc.js";
import { call, http, listeners, live } from "./store.js";
import { signal } from "./ui/html.js";
import { textOf } from "./ui/text.js";

export const PAGE = 50;
const MOST = 200; // messages on the page
const AROUND = 25; // messages that are newer than the message of a link
const LONGEST = 65536; // characters of a message
const LATER = 100; // ms from an event to the read: several events cause one

// Messages of the transcript have a seq and are in its order. Messages that are being sent or streamed follow; each is replaced when the transcript has it.
export class Conversation {
  messages = signal(/** @type {page.Message[]} */ ([])); hidden = signal(0); newer = signal(0);
  waiting = signal(/** @type {wire.PendingInputs} */ ({ items: [], total: 0 })); info = signal(/** @type {wire.SessionRow | null} */ (null));
  fault = signal(""); loaded = signal(false); stopping = signal(0);
  answering = signal(/** @type {page.Message | undefined} */ (undefined)); // the message that the next one answers
  #cursor = ""; #total = 0; #reading = false; #again = false; #timer = 0;

  // at is the message to show, 0 for the newest one. kept is an earlier transcript of the session, "" for the present one.
  /** @param {string} key */
  constructor(key, at = 0, kept = "") { this.key = key; this.at = at; this.kept = kept; }

  // follow is for an effect: it reads, follows events, and returns the function that ends it.
  follow = () => {
    /** @type {page.Listener} */ const listener = (...event) => this.#event(...event);
    listeners.add(listener);
    this.read();
    return () => { listeners.delete(listener); clearTimeout(this.#timer); };
  };

  /** @param {number} limit @param {number} offset @returns {Promise<wire.HistoryPage>} */
  #page = async (limit, offset) => /** @type {wire.HistoryPage} */ (await call("chat.history", { sessionKey: this.key, limit, offset, maxChars: LONGEST, ...(this.kept ? { sessionId: this.kept } : {}) }));

  async read() {
    if (!live.value) return;
    const asked = performance.now();
    try {
      let h = await this.#page(this.at ? 1 : PAGE, 0);
      const offset = this.at ? Math.max(0, h.totalMessages - this.at - AROUND) : 0;
      if (this.at) h = await this.#page(PAGE, offset);
      this.#cursor = h.deltaCursor;
      this.messages.value = this.messages.value.filter((m) => m.unsent || m.growing);
      this.#take(h.messages, h, offset, asked);
      this.#count(h.totalMessages, offset);
      this.fault.value = "";
      this.loaded.value = true;
      for (const m of this.messages.value.filter((u) => u.unsent === "lost")) this.#deliver(m);
    } catch (e) { if (live.value) this.fault.value = e.message; }
  }

  /** @param {number} total @param {number} newer */
  #count(total, newer) {
    this.#total = total;
    this.newer.value = newer;
    this.hidden.value = Math.max(0, total - newer - this.#kept().length);
  }

  #kept = () => this.messages.value.filter((m) => m.seq !== undefined);

  async older() {
    const h = await this.#page(PAGE, this.newer.value + this.#kept().length);
    const first = this.#kept()[0]?.seq ?? Infinity;
    const rows = [...h.messages.filter((m) => (m.seq ?? 0) < first).map(stored), ...this.#kept()];
    const over = Math.max(0, rows.length - MOST);
    this.messages.value = over > 0 ? rows.slice(0, MOST) : [...rows, ...this.messages.value.filter((m) => m.seq === undefined)];
    this.#count(h.totalMessages, this.newer.value + over + (over > 0 || this.newer.value > 0 ? h.totalMessages - this.#total : 0));
  }

  async later() {
    const limit = Math.min(PAGE, this.newer.value);
    const h = await this.#page(limit, this.newer.value - limit);
    const last = this.#kept().at(-1)?.seq ?? 0;
    const rows = [...this.#kept(), ...h.messages.filter((m) => (m.seq ?? 0) > last).map(stored)];
    this.messages.value = rows.slice(-MOST);
    this.#count(h.totalMessages, this.newer.value - limit + h.totalMessages - this.#total);
    if (this.newer.value === 0) this.#schedule();
  }

  toEnd() { this.at = 0; return this.read(); }

  #schedule() { this.#timer ||= setTimeout(() => { this.#timer = 0; this.#catchUp(); }, LATER); }

  // catchUp reads the new messages of the transcript, what waits and what runs. After it, the page shows the state of the gateway.
  async #catchUp() {
    if (!live.value || !this.loaded.value || this.kept) return;
    if (this.#reading) { this.#again = true; return; }
    this.#reading = true;
    try {
      do {
        this.#again = false;
        const asked = performance.now();
        const h = /** @type {wire.HistoryDelta | wire.HistoryReset} */ (await call("chat.history", { sessionKey: this.key, cursor: this.#cursor, limit: MOST, maxChars: LONGEST }));
        if (h.kind === "reset") { this.at = 0; await this.read(); continue; }
        this.#cursor = h.deltaCursor;
        this.#take(h.messages, h, this.newer.value, asked);
        this.#count(this.#total + h.messages.length, this.newer.value > 0 ? this.newer.value + h.messages.length : 0);
        this.#again ||= h.messages.length > 0; // one response is bounded in bytes
      } while (this.#again);
    } catch (e) { if (live.value) this.fault.value = e.message; }
    this.#reading = false;
  }

  /** @param {wire.HistoryMessage[]} messages @param {wire.HistoryPage | wire.HistoryDelta} h @param {number} newer @param {number} asked */
  #take(messages, h, newer, asked) {
    this.waiting.value = h.pendingInputs;
    this.info.value = h.sessionInfo;
    const active = new Set(h.sessionInfo.activeRunIds);
    if (active.size === 0) this.stopping.value = 0;
    if (newer > 0 && this.#kept().length > 0) return;
    const before = new Map(this.messages.value.map((m) => [m.id, m]));
    const fresh = messages.map(stored).map((m) => ({ ...m, tools: before.get(m.id)?.tools, chosen: before.get(m.id)?.chosen }));
    const ids = new Set(fresh.map((m) => m.id));
    const rows = [...this.#kept().filter((m) => !ids.has(m.id)), ...fresh];
    if (newer > 0) { this.messages.value = rows; return; }
    const known = new Set(rows.flatMap((m) => [sideOf(m.role, m.run), ...(m.role === "user" ? [] : [`end-${m.run}`])]));
    const waits = new Set(h.pendingInputs.items.map((p) => p.runId));
    const stays = (/** @type {page.Message} */ m) => m.seq === undefined && !ids.has(m.id) && !known.has(m.id) && !(m.ended && known.has(`end-${m.run}`))
      && !(m.role === "user" && waits.has(m.run ?? "") && !m.unsent) && (!m.growing || (m.since ?? 0) > asked || active.has(m.run ?? ""));
    const extra = this.messages.value.filter(stays);
    const grown = h.inFlightRun;
    for (const run of active) {
      if (known.has(`out-${run}`) || extra.some((m) => m.id === `out-${run}`)) continue;
      extra.push(growing(run, grown?.runId === run ? grown.text : ""));
    }
    this.#show([...rows, ...extra]);
  }

  /** @param {string} text @param {File[]} files @param {(send: page.Http, files: File[]) => Promise<{fileId: string}[]>} upload */
  async send(text, files, upload) {
    const answers = this.answering.value?.seq;
    this.answering.value = undefined;
    if (this.newer.value > 0) await this.toEnd();
    const run = crypto.randomUUID?.() ?? `w-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    /** @type {page.Message} */ const m = { id: `in-${run}`, run, role: "user", text: signal(text), chosen: files, unsent: "sending", answers, attach: () => upload(http, files) };
    this.#put(m);
    await this.#deliver(m);
  }

  // The idempotency key of a message is its run: a message whose response was lost is sent again with the same key, and is accepted once.
  /** @param {page.Message} m */
  async #deliver(m) {
    try {
      const attachments = await m.attach?.() ?? [];
      await call("chat.send", { sessionKey: this.key, message: m.text.value, idempotencyKey: m.run ?? "", ...(attachments.length > 0 ? { attachments } : {}), ...(m.answers ? { replyTo: m.answers } : {}) });
      this.#change(m.id, { unsent: undefined, note: undefined });
      this.#schedule();
    } catch (e) {
      const lost = e instanceof NotConfirmed;
      this.#change(m.id, { unsent: lost ? "lost" : "failed", note: lost ? "not confirmed yet; it is sent again when the gateway answers" : `not sent: ${e.message}`, bad: !lost });
    }
  }

  // stop ends one run, or, with all, everything that was accepted so far.
  /** @param {{runId?: string, all?: boolean}} params */
  async stop(params = {}) {
    if (!params.runId) this.stopping.value ||= Date.now();
    try { await call("chat.abort", { sessionKey: this.key, ...params }); } catch (e) { this.stopping.value = 0; throw e; } finally { this.#schedule(); }
  }

  // rest reads the text of a message from a character on.
  /** @param {number} seq @param {number} from @returns {Promise<wire.HistoryMessage | undefined>} */
  rest = async (seq, from) => /** @type {wire.HistoryPage} */ (await call("chat.history", { sessionKey: this.key, seq, fromChar: from, maxChars: LONGEST, ...(this.kept ? { sessionId: this.kept } : {}) })).messages[0];

  reset = () => call("sessions.reset", { key: this.key });

  /** @param {page.Message} m */
  #put(m) { this.#show([...this.messages.value, m]); }

  /** @param {page.Message[]} rows */
  #show(rows) {
    this.messages.value = rows.slice(-MOST);
    this.hidden.value = Math.max(0, this.#total - this.newer.value - this.#kept().length);
  }

  /** @param {string} id @param {Partial<page.Message>} more */
  #change(id, more) { this.messages.value = this.messages.value.map((m) => (m.id === id ? { ...m, ...more } : m)); }

  /** @param {string} run */
  #row(run) {
    const known = this.messages.value.find((m) => m.id === `out-${run}`);
    if (known) return known;
    const row = growing(run, "");
    this.#put(row);
    return row;
  }

  /** @param {string} run @param {string | undefined} text @param {string} [note] @param {boolean} [bad] */
  #end(run, text, note, bad) {
    const m = this.messages.value.find((one) => one.id === `out-${run}`);
    this.#schedule();
    if (!m && !text && !note) return;
    if (!m) this.#put({ ...growing(run, text ?? ""), growing: false, ended: true, note, bad });
    else {
      if (text !== undefined) m.text.value = text;
      this.#change(m.id, { growing: false, ended: true, note, bad });
    }
    this.#change(`in-${run}`, { note: undefined });
  }

  /** @type {page.Listener} */
  #event = (name, p) => {
    if (name === "reconnected") { if (this.loaded.value && !this.kept) this.#reconnected(); else this.read(); }
    if (this.kept || !("sessionKey" in p) || p.sessionKey !== this.key) return;
    if (name === "sessions.changed") this.#schedule();
    if (this.newer.value > 0) return;
    if (name === "agent" && p.stream === "tool") step(this.#row(p.runId), /** @type {wire.ToolData} */ (p.data));
    if (name !== "chat") return;
    const text = p.message ? textOf(p.message) : undefined;
    switch (p.state) {
      case "delta": this.#row(p.runId).text.value = text ?? ""; break;
      case "final": this.#end(p.runId, p.yielded ? undefined : text, p.yielded ? "answered together with a later message" : p.message?.note); break;
      case "aborted": this.#end(p.runId, text, `stopped (${p.stopReason})`); break;
      case "error": this.#end(p.runId, text, p.errorMessage, true); break;
      default:
    }
  };

  #reconnected() {
    for (const m of this.messages.value.filter((u) => u.unsent === "lost")) this.#deliver(m);
    this.#schedule();
  }
}

/** @param {string} run @param {string} text @returns {page.Message} */
const growing = (run, text) => ({ id: `out-${run}`, run, role: "assistant", text: signal(text), growing: true, since: performance.now(), from: Date.now(), tools: signal([]) });

// step records one step of a tool call.
/** @param {page.Message} m @param {wire.ToolData} data */
function step(m, data) {
  if (!m.tools) return;
  /** @type {page.ToolCall} */ const was = m.tools.value.find((t) => t.id === data.toolCallId) ?? { name: "", id: data.toolCallId, from: Date.now() };
  /** @type {page.ToolCall} */ const is = { ...was, name: data.name || was.name, args: data.args ?? was.args, result: data.result ?? data.partialResult ?? was.result, bad: data.isError, ms: data.phase === "result" ? Date.now() - was.from : undefined };
  m.tools.value = m.tools.value.includes(was) ? m.tools.value.map((t) => (t === was ? is : t)) : [...m.tools.value, is];
}

/** @param {string} role @param {string | undefined} run */
const sideOf = (role, run) => `${role === "user" ? "in" : role === "assistant" ? "out" : "about"}-${run}`;

// The key of an answer is its run, so an answer keeps its row when it is read again after it was streamed.
/** @param {wire.HistoryMessage} m @returns {page.Message} */
const stored = (m) => ({
  id: m.runId && m.role !== "system" && !m.command ? sideOf(m.role, m.runId) : m.id ?? "",
  run: m.runId, seq: m.seq, role: m.role, command: m.command, files: m.files, origin: m.origin, at: m.timestamp, text: signal(withoutLines(m.nextChar ? textOf(m).slice(0, -3) : textOf(m), m.files)), more: m.nextChar,
  tool: m.role === "system" && m.stopReason?.startsWith("tool"), bad: m.role === "system" && m.stopReason === "error",
  note: m.role !== "system" && m.stopReason && m.stopReason !== "stop" ? m.stopReason : undefined,
});

// A message ends with a line for each file. The line is removed where the file itself is shown.
/** @param {string} text @param {wire.MessageFile[]} [files] */
function withoutLines(text, files = []) {
  const lines = text.split("\n");
  for (let left = files.length; left > 0 && lines.at(-1)?.startsWith("[attachment: "); left--) lines.pop();
  return lines.join("\n");
}
