// One conversation: stored messages, what is sent, and answers as they grow.

import { NotConfirmed } from "./rpc.js";
import { call, http, listeners, live } from "./store.js";
import { signal } from "./ui/html.js";
import { textOf } from "./ui/text.js";

const PAGE = 50;
const MOST = 200; // messages in the page

export class Conversation {
  messages = signal([]); hidden = signal(0); fault = signal(""); loaded = signal(false);

  constructor(key) { this.key = key; }

  // follow is for an effect: it reads, follows events, and returns the function that ends it.
  follow = () => {
    const listener = (name, p) => this.#event(name, p);
    listeners.add(listener);
    this.read();
    return () => { listeners.delete(listener); this.closed = true; };
  };

  async read() {
    if (!live.value) return;
    try {
      const h = await call("chat.history", { sessionKey: this.key, limit: PAGE });
      const unsent = this.messages.value.filter((m) => m.unsent);
      const known = new Set(h.messages.map((m) => m.runId));
      const rows = h.messages.map(stored);
      for (const p of h.pendingInputs?.items ?? []) rows.push({ id: `in-${p.runId ?? p.id}`, run: p.runId ?? p.id, role: "user", text: signal(textOf(p.message)), note: "waiting" });
      const waiting = new Set(rows.map((r) => r.run));
      if (h.inFlightRun) rows.push({ id: `out-${h.inFlightRun.runId}`, run: h.inFlightRun.runId, role: "assistant", text: signal(h.inFlightRun.text), growing: true });
      this.messages.value = [...rows, ...unsent.filter((m) => !known.has(m.run) && !waiting.has(m.run))];
      this.hidden.value = Math.max(0, (h.totalMessages ?? 0) - h.messages.length);
      this.fault.value = "";
      this.loaded.value = true;
      for (const m of this.messages.value.filter((u) => u.unsent === "lost")) this.#deliver(m);
    } catch (e) { if (live.value) this.fault.value = e.message; }
  }

  async older() {
    const have = this.messages.value.filter((m) => m.seq !== undefined).length;
    const h = await call("chat.history", { sessionKey: this.key, limit: PAGE, offset: have });
    this.messages.value = [...h.messages.map(stored), ...this.messages.value];
    this.hidden.value = Math.max(0, this.hidden.value - h.messages.length);
  }

  async send(text, files, upload) {
    const run = crypto.randomUUID?.() ?? `w-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const m = { id: `in-${run}`, run, role: "user", text: signal(text), chosen: files, unsent: "sending", attach: () => upload(http, files) };
    this.#put(m);
    await this.#deliver(m);
  }

  // The key of a message is its run: a message whose answer was lost is sent again under the same key, and is taken once.
  async #deliver(m) {
    try {
      const attachments = await m.attach();
      await call("chat.send", { sessionKey: this.key, message: m.text.value, idempotencyKey: m.run, ...(attachments.length > 0 ? { attachments } : {}) });
      this.#change(m.id, { unsent: undefined, note: undefined });
    } catch (e) {
      const lost = e instanceof NotConfirmed;
      this.#change(m.id, { unsent: lost ? "lost" : "failed", note: lost ? "not confirmed yet; it is sent again when the gateway answers" : `not sent: ${e.message}`, bad: !lost });
    }
  }

  stop = () => call("chat.abort", { sessionKey: this.key });

  #put(m) { this.messages.value = [...this.messages.value, m].slice(-MOST); }

  #change(id, more) { this.messages.value = this.messages.value.map((m) => (m.id === id ? { ...m, ...more } : m)); }

  #grow(run, text) {
    const m = this.messages.value.find((one) => one.id === `out-${run}`);
    if (m) m.text.value = text;
    else this.#put({ id: `out-${run}`, run, role: "assistant", text: signal(text), growing: true });
  }

  #end(run, text, note) {
    const m = this.messages.value.find((one) => one.id === `out-${run}`);
    if (!m && !text && !note) return;
    if (!m) this.#put({ id: `out-${run}`, run, role: "assistant", text: signal(text ?? ""), note });
    else {
      if (text !== undefined) m.text.value = text;
      this.#change(m.id, { growing: false, note });
    }
    this.#change(`in-${run}`, { note: undefined });
  }

  #event(name, p) {
    if (name === "reconnected") this.read();
    if (p.sessionKey !== this.key) return;
    if (name === "sessions.changed" && (p.reason === "reset" || p.reason === "delete")) this.read();
    if (name !== "chat") return;
    const text = p.message ? textOf(p.message) : undefined;
    switch (p.state) {
      case "delta": this.#grow(p.runId, text ?? ""); break;
      case "final": this.#end(p.runId, p.yielded ? undefined : text, p.yielded ? "answered together with a later message" : p.message?.note); break;
      case "aborted": this.#end(p.runId, text, `stopped (${p.stopReason})`); break;
      case "error": this.#end(p.runId, text, p.errorMessage); break;
      default:
    }
  }
}

// An answer that was seen growing and is read again later keeps its row: the key of an answer is its run.
const stored = (m) => ({
  id: m.runId && m.role !== "system" && !m.command ? `${m.role === "user" ? "in" : "out"}-${m.runId}${m.role === "user" || m.role === "assistant" ? "" : m.seq}` : m.id,
  run: m.runId, seq: m.seq, role: m.role, command: m.command, files: m.files, at: m.timestamp, text: signal(withoutLines(textOf(m), m.files)),
  note: m.stopReason && m.stopReason !== "stop" ? m.stopReason : undefined,
});

// In a message each file has a line at the end; where the file itself is shown, the line would show it twice.
function withoutLines(text, files = []) {
  const lines = text.split("\n");
  for (let left = files.length; left > 0 && lines.at(-1)?.startsWith("[attachment: "); left--) lines.pop();
  return lines.join("\n");
}
