// The first view: lanes as they are now, sessions, channels, jobs, replicas.

import { ago, clock, el, pill, slots, span } from "./dom.js";

const REFRESH = 5000;

export class Overview {
  constructor(root, gateway) {
    this.gateway = gateway;
    this.tiles = el("div", { class: "tiles" });
    this.lanes = el("div", { class: "lanes" });
    this.channels = el("div", { class: "rows" });
    this.nodes = el("div", { class: "rows" });
    this.problems = el("div", { class: "problems", role: "alert" });
    root.replaceChildren(
      this.problems, this.tiles,
      el("div", { class: "card" }, el("h2", {}, "Lanes"), el("p", { class: "quiet small" }, "Each turn takes a slot of its lane, or waits for one."), this.lanes),
      el("div", { class: "pair" },
        el("div", { class: "card" }, el("h2", {}, "Channels"), this.channels),
        el("div", { class: "card" }, el("h2", {}, "Replicas"), this.nodes)),
    );
  }

  show() {
    this.refresh();
    this.timer = setInterval(() => this.refresh(), REFRESH);
  }

  hide() { clearInterval(this.timer); }

  async refresh() {
    try {
      const [status, lanes, channels] = await Promise.all(
        ["status", "lanes.status", "channels.status"].map((m) => this.gateway.call(m)));
      this.drawStatus(status);
      this.drawLanes(lanes.lanes);
      this.drawChannels(channels);
    } catch (fault) {
      this.problems.replaceChildren(el("p", { class: "fault" }, fault.message));
    }
  }

  event(name, payload) {
    if (name === "lanes") this.drawLanes(payload.lanes);
    if (name === "health") this.drawProblems(payload.problems ?? []);
  }

  drawProblems(list) {
    this.problems.replaceChildren(...list.map((p) => el("p", { class: "fault" }, p)));
  }

  drawStatus(s) {
    if (s.ok) this.problems.replaceChildren();
    const cron = s.cron ?? {};
    const late = cron.oldestDueMs ? `, oldest due ${span(cron.oldestDueMs)}` : "";
    this.tiles.replaceChildren(
      tile("Running", s.sessions.running, `${s.sessions.waiting} waiting`, s.sessions.running > 0 ? "live" : ""),
      tile("Sessions", s.sessions.known, `${s.agents} ${s.agents === 1 ? "agent" : "agents"}`),
      tile("Jobs", cron.enabled ? cron.jobs : "off", cron.enabled ? `${cron.backlog} due${late}` : "no scheduler here"),
      tile("Next job", cron.nextWakeAtMs ? span(Math.max(0, cron.nextWakeAtMs - Date.now())) : "–", cron.nextWakeAtMs ? clock(cron.nextWakeAtMs) : "none planned"),
      tile("Clients", s.clients, `up ${span(s.uptimeMs)}`),
    );
    this.nodes.replaceChildren(...s.nodes.map((n) => el("div", { class: "row" },
      el("span", { class: "name", title: n.nodeId }, n.nodeId),
      el("span", { class: "quiet" }, n.version),
      n.draining ? pill("warn", "draining") : pill("good", "live"))));
    if (s.nodes.length === 0) this.nodes.replaceChildren(el("p", { class: "quiet" }, "This one only."));
  }

  drawLanes(lanes) {
    const order = ["main", "subagent", "team", "cron"];
    const place = (l) => (order.includes(l.name) ? order.indexOf(l.name) : order.length);
    this.lanes.replaceChildren(...lanes.toSorted((a, b) => place(a) - place(b)).map((l) => {
      const bar = slots(l.active, l.capacity);
      const busy = l.active >= l.capacity ? "full" : l.active > 0 ? "busy" : "idle";
      return el("div", { class: `lane ${busy}` },
        el("span", { class: "name" }, l.name), bar,
        el("span", { class: "count" }, `${l.active} / ${l.capacity}`),
        el("span", { class: l.waiting ? "waiting" : "quiet" }, l.waiting ? `${l.waiting} waiting, ${span(l.oldestWaitMs)}` : "none waiting"),
        el("span", { class: "quiet small" }, `${l.finished} done${l.failed ? `, ${l.failed} failed` : ""}${l.cancelled ? `, ${l.cancelled} stopped` : ""}`));
    }));
  }

  drawChannels(c) {
    const rows = c.channelOrder.flatMap((id) => (c.channelAccounts[id] ?? []).map((a) => {
      const state = a.connected ? pill("good", "connected") : a.running ? pill("warn", "not connected") : pill("off", a.enabled ? "stopped" : "off");
      const note = id === "web" ? `${c.channels.web.connections} open` : a.lastError ?? (a.lastPollAgeMs === null ? "" : `polled ${ago(Date.now() - a.lastPollAgeMs)}`);
      const out = a.outboxFailed ? pill("bad", `${a.outboxFailed} undelivered`) : a.outboxWaiting ? pill("warn", `${a.outboxWaiting} to send`) : null;
      return el("div", { class: "row" }, el("span", { class: "name" }, c.channelLabels[id]), el("span", { class: "quiet" }, note), out, state);
    }));
    this.channels.replaceChildren(...rows);
  }
}

function tile(label, value, note, kind = "") {
  return el("div", { class: `card tile ${kind}` }, el("span", { class: "label" }, label), el("span", { class: "value" }, value), el("span", { class: "quiet small" }, note));
}
