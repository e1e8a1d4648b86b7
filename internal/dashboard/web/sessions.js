// Sessions at the left, the conversation at the right, answers as they are made.

import { ago, el, pill, prose, textOf } from "./dom.js";
import { Outgoing, Shown, upload } from "./files.js";

const NAMES = 60000; // how long names are taken as they are

export class Sessions {
  constructor(root, gateway, hello) {
    this.gateway = gateway;
    this.mayWrite = hello.auth.scopes.some((s) => s === "operator.write" || s === "operator.admin");
    this.mayName = hello.auth.scopes.includes("operator.admin") && hello.features.methods.includes("channels.pairing.list");
    this.people = new Map();
    this.named = 0;
    this.key = hello.snapshot.sessionDefaults.mainSessionKey;
    this.list = el("ul", { class: "list" });
    this.search = el("input", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions", oninput: () => this.later() });
    const fresh = el("button", { type: "button", class: "plain", onclick: () => this.create() }, "New");
    this.title = el("h2", { class: "ellipsis" });
    this.state = el("span", { class: "quiet small" });
    this.stop = el("button", { type: "button", class: "danger", onclick: () => this.abort(), hidden: true }, "Stop");
    this.log = el("div", { class: "log", "aria-live": "polite" });
    this.box = el("textarea", { rows: 1, placeholder: this.mayWrite ? "Message" : "This token may only read", "aria-label": "Message", title: "Enter sends, Shift+Enter breaks the line", disabled: !this.mayWrite });
    this.box.addEventListener("keydown", (e) => this.typed(e));
    this.box.addEventListener("input", () => this.fit());
    const send = el("button", { type: "submit", class: "primary", disabled: !this.mayWrite }, "Send");
    this.outgoing = new Outgoing((why) => { this.state.textContent = why; });
    this.shown = new Shown();
    if (this.mayWrite) {
      this.box.addEventListener("paste", (e) => { if (e.clipboardData.files.length > 0) { e.preventDefault(); this.outgoing.add(e.clipboardData.files); } });
      root.addEventListener("dragover", (e) => e.preventDefault());
      root.addEventListener("drop", (e) => { e.preventDefault(); this.outgoing.add(e.dataTransfer.files); });
    }
    const form = el("form", { class: "compose", onsubmit: (e) => { e.preventDefault(); this.send(); } },
      this.outgoing.chips, this.outgoing.input, this.mayWrite ? this.outgoing.button : null, this.box, send);
    root.replaceChildren(
      el("aside", { class: "card side" }, el("div", { class: "find" }, this.search, this.mayWrite ? fresh : null), this.list),
      el("div", { class: "card talk" }, el("div", { class: "head" }, el("div", { class: "grow" }, this.title, this.state), this.stop), this.log, form),
    );
    this.runs = new Map(); // answers that grow, by run
    this.rows = [];
  }

  show() { this.refresh(); this.read(); this.box.focus(); }

  hide() { clearTimeout(this.timer); }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 250);
  }

  async refresh() {
    try {
      const search = this.search.value.trim();
      await this.names();
      this.rows = await this.gateway.list("sessions.list", "sessions", search ? { search } : { hideCronRuns: true }, 100);
      this.draw();
    } catch (fault) { this.state.textContent = fault.message; }
  }

  // People stand by their names, which an operator may read.
  async names() {
    if (!this.mayName || Date.now() - this.named < NAMES) return;
    this.named = Date.now();
    const got = await this.gateway.call("channels.pairing.list", { extended: true }).catch(() => ({}));
    this.people = new Map((got.granted ?? []).map((g) => [`${g.channel}:direct:${g.senderId}`, `${g.senderLabel} · ${g.channelLabel}`]));
  }

  label(key) {
    const name = key.split(":").slice(2).join(":") || key;
    return this.people.get(name) ?? name;
  }

  draw() {
    const items = this.rows.map((s) => el("li", {},
      el("button", { type: "button", class: s.key === this.key ? "item chosen" : "item", title: s.key, onclick: () => this.open(s.key) },
        el("span", { class: "top" }, el("span", { class: "name ellipsis" }, this.label(s.key)), mark(s)),
        el("span", { class: "quiet small ellipsis" }, s.lastMessagePreview || "no answer yet"),
        el("span", { class: "quiet small" }, `${s.agentId} · ${ago(s.updatedAt)}`))));
    this.list.replaceChildren(...items);
    if (items.length === 0) this.list.replaceChildren(el("li", { class: "quiet empty" }, this.search.value ? "Nothing found." : "No sessions yet. Send a message."));
    const mine = this.rows.find((s) => s.key === this.key);
    this.title.textContent = this.label(this.key);
    this.title.title = this.key;
    if (mine) this.state.textContent = mine.hasActiveRun ? `working${mine.queueDepth ? `, ${mine.queueDepth} waiting` : ""}` : `${mine.lane} lane · ${mine.effectiveQueueMode}`;
    else this.state.textContent = "new";
    this.stop.hidden = !(this.mayWrite && (mine?.hasActiveRun || this.runs.size > 0));
  }

  open(key) {
    this.key = key;
    this.draw();
    this.read();
    this.box.focus();
  }

  create() { this.open(`agent:${this.key.split(":")[1]}:chat-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`); }

  async read() {
    const key = this.key;
    try {
      const h = await this.gateway.call("chat.history", { sessionKey: key, limit: 200 });
      if (key !== this.key) return;
      this.runs.clear();
      this.shown.clear();
      this.log.replaceChildren(...h.messages.map((m) => bubble(m.role, withoutLines(textOf(m), m.files), m, m.files && this.shown.kept(this.gateway, m.files))));
      for (const p of h.pendingInputs?.items ?? []) this.put(p.runId ?? p.id, "user", textOf(p.message), "waiting");
      if (h.inFlightRun) this.grow(h.inFlightRun.runId, h.inFlightRun.text);
      if (h.messages.length === 0 && !h.inFlightRun) this.log.replaceChildren(el("p", { class: "quiet empty" }, "No messages yet."));
      this.down(true);
    } catch (fault) { this.log.replaceChildren(el("p", { class: "fault" }, fault.message)); }
  }

  put(run, role, text, note, files) {
    this.log.querySelector(".empty")?.remove();
    const b = bubble(role, text, { note }, files);
    b.dataset.run = run;
    this.log.append(b);
    this.down(role === "user");
    return b;
  }

  grow(run, text) {
    let b = this.runs.get(run);
    if (!b) {
      b = this.put(run, "assistant", "");
      b.classList.add("growing");
      this.runs.set(run, b);
    }
    b.querySelector(".text").replaceChildren(...prose(text));
    this.down(false);
    this.draw();
  }

  end(run, role, text, note) {
    const b = this.runs.get(run) ?? (text || note ? this.put(run, role, text ?? "") : null);
    this.runs.delete(run);
    if (b) {
      b.classList.remove("growing");
      if (text !== undefined) b.querySelector(".text").replaceChildren(...prose(text));
      if (note) b.append(el("span", { class: "note" }, note));
    }
    this.down(false);
    this.draw();
  }

  // down follows the conversation, unless the reader has scrolled up to read something older.
  down(force) {
    const left = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
    if (force || left < 160) this.log.scrollTop = this.log.scrollHeight;
  }

  typed(e) {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      this.send();
    }
  }

  fit() {
    this.box.rows = Math.min(8, Math.max(1, this.box.value.split("\n").length));
  }

  async send() {
    const files = this.outgoing.take();
    const text = this.box.value.trim() ? this.box.value : files.map((f) => f.name).join(", ");
    if (!text) return;
    this.box.value = "";
    this.fit();
    const run = crypto.randomUUID?.() ?? `w-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const key = this.key, mine = this.put(run, "user", text, undefined, this.shown.chosen(files));
    try {
      const attachments = await upload(this.gateway, files);
      await this.gateway.call("chat.send", { sessionKey: key, message: text, idempotencyKey: run, ...(attachments.length > 0 ? { attachments } : {}) });
      this.later();
    } catch (fault) {
      mine.append(el("span", { class: "note bad" }, fault.message));
      this.outgoing.add(files);
      if (!this.box.value) this.box.value = text;
    }
  }

  async abort() {
    try { await this.gateway.call("chat.abort", { sessionKey: this.key }); } catch (fault) { this.state.textContent = fault.message; }
  }

  event(name, p) {
    if (name === "sessions.changed") {
      this.later();
      if (p.sessionKey === this.key && (p.reason === "reset" || p.reason === "delete")) this.read();
      return;
    }
    if (name !== "chat" || p.sessionKey !== this.key) return;
    if (p.state === "delta") this.grow(p.runId, textOf(p.message));
    if (p.state === "final") this.end(p.runId, "assistant", p.yielded ? undefined : textOf(p.message), p.yielded ? "answered together with a later message" : undefined);
    if (p.state === "aborted") this.end(p.runId, "assistant", p.message ? textOf(p.message) : undefined, `stopped (${p.stopReason})`);
    if (p.state === "error") this.end(p.runId, "assistant", p.message ? textOf(p.message) : undefined, p.errorMessage);
  }
}

function mark(s) {
  if (s.hasActiveRun) return pill("live", s.queueDepth ? `working +${s.queueDepth}` : "working");
  if (s.queueDepth) return pill("warn", `${s.queueDepth} waiting`);
  if (s.status === "failed" || s.status === "timeout") return pill("bad", s.status);
  return null;
}

// In a text each file has a line at the end; where the file itself is shown, the line would show it twice.
function withoutLines(text, files = []) {
  const lines = text.split("\n");
  for (let left = files.length; left > 0 && lines.at(-1)?.startsWith("[attachment: "); left--) lines.pop();
  return lines.join("\n");
}

function bubble(role, text, m = {}, files = null) {
  const b = el("article", { class: `bubble ${role}${m.command ? " command" : ""}` }, el("div", { class: "text" }, ...prose(text)), files);
  if (m.stopReason && m.stopReason !== "stop") b.append(el("span", { class: "note" }, m.stopReason));
  if (m.note) b.append(el("span", { class: "note" }, m.note));
  if (m.timestamp) b.title = new Date(m.timestamp).toLocaleString();
  return b;
}
