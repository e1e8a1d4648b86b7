// Jobs: what will run when, and how it went.

import { ago, el, pill, span, when } from "/dashboard/dom.js";

export class Jobs {
  constructor(root, gateway, hello) {
    this.gateway = gateway;
    this.mayChange = hello.auth.scopes.includes("operator.admin");
    this.rows = el("tbody");
    this.fault = el("p", { class: "fault", role: "alert" });
    this.runs = el("div", { class: "card", hidden: true });
    root.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, "Jobs"), this.fault,
        el("div", { class: "scroll" }, el("table", {},
          el("thead", {}, el("tr", {}, ...["Name", "Schedule", "Next", "Last", "State", ""].map((h) => el("th", {}, h)))), this.rows))),
      this.runs,
    );
  }

  show() { this.refresh(); }

  hide() { clearTimeout(this.timer); }

  async refresh() {
    try {
      const jobs = await this.gateway.list("cron.list", "jobs", { includeDisabled: true });
      this.fault.textContent = "";
      this.rows.replaceChildren(...jobs.map((j) => this.row(j)));
      if (jobs.length === 0) this.rows.replaceChildren(el("tr", {}, el("td", { colspan: 6, class: "quiet empty" }, "No jobs yet. In a terminal: laneway cron add --help")));
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  row(j) {
    const last = j.lastRunStatus ?? j.state?.lastRunStatus;
    const acts = this.mayChange ? [
      el("button", { type: "button", class: "plain", onclick: () => this.act("cron.run", { id: j.id, mode: "force" }) }, "Run"),
      j.enabled
        ? el("button", { type: "button", class: "plain", onclick: () => this.act("cron.pause", { id: j.id, note: "paused in the dashboard" }) }, "Pause")
        : el("button", { type: "button", class: "plain", onclick: () => this.act(j.paused ? "cron.resume" : "cron.toggle", j.paused ? { id: j.id } : { jobId: j.id, enabled: true }) }, "Resume"),
      ...(j.enabled && j.deliveryPaused ? [el("button", { type: "button", class: "plain", onclick: () => this.act("cron.resume", { id: j.id }) }, "Send again")] : []),
    ] : [];
    return el("tr", {},
      el("td", {}, el("button", { type: "button", class: "link-like", onclick: () => this.history(j) }, j.displayName || j.name)),
      el("td", {}, schedule(j.schedule)),
      el("td", {}, j.enabled ? when(j.nextRunAtMs) : "–"),
      el("td", {}, last ? el("span", {}, pill(last === "ok" ? "good" : last === "error" ? "bad" : "warn", last), " ", el("span", { class: "quiet" }, ago(j.lastRunAtMs))) : el("span", { class: "quiet" }, "never")),
      el("td", {}, j.state?.runningAtMs ? pill("live", "running") : j.enabled ? (j.deliveryPaused ? pill("warn", "not sent: " + j.deliveryPaused.reason) : pill("good", "on")) : pill("off", j.paused ? "paused" : "off")),
      el("td", { class: "acts" }, ...acts));
  }

  async act(method, params) {
    try {
      await this.gateway.call(method, params);
      this.refresh();
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  async history(j) {
    try {
      const entries = await this.gateway.list("cron.runs", "entries", { id: j.id }, 20);
      this.runs.hidden = false;
      this.runs.replaceChildren(el("h2", {}, `Runs of ${j.displayName || j.name}`), el("div", { class: "rows" },
        ...entries.map((r) => el("div", { class: "row" },
          el("span", { class: "name" }, when(r.scheduledForMs ?? r.runAtMs ?? r.ts)),
          el("span", { class: "quiet grow ellipsis" }, r.error || r.summary || ""),
          el("span", { class: "quiet" }, r.durationMs === undefined ? "" : span(r.durationMs)),
          pill(r.status === "ok" ? "good" : r.status === "error" ? "bad" : "warn", r.outcome ?? r.status)))));
      if (entries.length === 0) this.runs.append(el("p", { class: "quiet" }, "It has not run yet."));
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  event(name) {
    if (name !== "cron") return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 300);
  }
}

function schedule(s = {}) {
  if (s.kind === "every") return `every ${span(s.everyMs)}`;
  if (s.kind === "at") return `once, ${when(Date.parse(s.at) || s.atMs)}`;
  return el("span", {}, el("code", {}, s.expr ?? s.kind), s.tz ? el("span", { class: "quiet" }, ` ${s.tz}`) : null);
}
