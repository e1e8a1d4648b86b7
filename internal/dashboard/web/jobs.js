// Jobs: what will run when, and how it went.

import { ago, clocks, el, pill, span, when } from "./dom.js";

const HEADS = ["Name", "Schedule", "Next", "Last", "State", ""];

export class Jobs {
  constructor(root, gateway, hello) {
    this.gateway = gateway;
    this.mayChange = hello.auth.scopes.includes("operator.admin");
    this.rows = el("tbody");
    this.fault = el("p", { class: "fault", role: "alert" });
    this.runs = el("div", { class: "card", hidden: true });
    root.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, "Jobs"), this.fault,
        el("div", { class: "scroll" }, el("table", { class: "cards jobs" },
          el("thead", {}, el("tr", {}, ...HEADS.map((h) => el("th", {}, h)))), this.rows))),
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
    const cells = [
      el("button", { type: "button", class: "link-like", title: j.id, onclick: () => this.history(j) }, j.displayName || j.name),
      schedule(j.schedule),
      j.enabled ? when(j.nextRunAtMs) : "–",
      last ? el("span", {}, pill(last === "ok" ? "good" : last === "error" ? "bad" : "warn", last), " ", el("span", { class: "quiet" }, ago(j.lastRunAtMs))) : el("span", { class: "quiet" }, "never"),
      j.state?.runningAtMs ? pill("live", "running") : j.enabled ? (j.deliveryPaused ? pill("warn", "not sent: " + j.deliveryPaused.reason) : pill("good", "on")) : pill("off", j.paused ? "paused" : "off"),
    ];
    // On a narrow screen a row stands as a card, where the heads of the columns are beside the values.
    return el("tr", {}, ...cells.map((c, i) => el("td", { "data-head": HEADS[i] }, el("div", {}, c))), el("td", { class: "acts" }, ...acts));
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
      const times = clocks(entries.map((r) => r.scheduledForMs ?? r.runAtMs ?? r.ts));
      this.runs.replaceChildren(el("h2", {}, `Runs of ${j.displayName || j.name}`), el("div", { class: "rows" },
        ...entries.map((r, i) => el("div", { class: "row" },
          el("span", { class: "name", title: r.runId }, times[i]),
          el("span", { class: "quiet grow ellipsis" }, r.error || r.summary || ""),
          el("span", { class: "quiet" }, r.durationMs === undefined ? "" : span(r.durationMs)),
          pill(r.status === "ok" ? "good" : r.status === "error" ? "bad" : "warn", r.outcome ?? r.status)))));
      if (entries.length === 0) this.runs.append(el("p", { class: "quiet" }, "It has not run yet."));
      this.runs.scrollIntoView({ block: "nearest" });
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
