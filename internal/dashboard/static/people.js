// People: who asks to be let in to a bot, and who was. A code is never shown here; it is between the person and the operator.

import { ago, el, when } from "/dashboard/dom.js";

export class People {
  constructor(root, gateway) {
    this.gateway = gateway;
    this.asking = el("tbody");
    this.granted = el("tbody");
    this.fault = el("p", { class: "fault", role: "alert" });
    root.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, "They ask to be let in"), this.fault, table(["Name", "Number", "Bot", "Asked", "Until", ""], this.asking)),
      el("div", { class: "card" }, el("h2", {}, "They may talk"), table(["Name", "Number", "Bot", "Since", "Let in by", ""], this.granted)),
    );
  }

  show() {
    this.refresh();
    this.timer = setInterval(() => this.refresh(), 10000);
  }

  hide() { clearInterval(this.timer); }

  async refresh() {
    try {
      const got = await this.gateway.call("channels.pairing.list", { extended: true });
      this.fault.textContent = "";
      fill(this.asking, got.requests.map((r) => this.request(r)), "Nobody. Whoever writes to a bot for the first time appears here.");
      fill(this.granted, (got.granted ?? []).map((g) => this.grant(g)), "Nobody yet, besides those in the configuration.");
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  request(r) {
    const which = { channel: r.channel, accountId: r.accountId, requestId: r.requestId };
    return person(r, ago(Date.parse(r.createdAt)), when(Date.parse(r.expiresAt)),
      el("button", { type: "button", class: "plain", onclick: () => this.act("channels.pairing.approve", which) }, "Let in"),
      el("button", { type: "button", class: "plain", onclick: () => this.act("channels.pairing.dismiss", which) }, "Dismiss"));
  }

  grant(g) {
    return person(g, ago(Date.parse(g.approvedAt)), g.approvedBy,
      el("button", { type: "button", class: "plain", onclick: () => this.act("channels.pairing.revoke", { channel: g.channel, accountId: g.accountId, senderId: g.senderId }) }, "Put out"));
  }

  async act(method, params) {
    try {
      await this.gateway.call(method, params);
      this.refresh();
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  event() {}
}

function table(heads, rows) {
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))), rows));
}

function person(p, since, last, ...acts) {
  return el("tr", {}, el("td", {}, p.senderLabel), el("td", {}, el("code", {}, p.senderId)), el("td", {}, `${p.channelLabel} ${p.accountId}`),
    el("td", {}, since), el("td", {}, last), el("td", { class: "acts" }, ...acts));
}

function fill(body, rows, empty) {
  body.replaceChildren(...(rows.length > 0 ? rows : [el("tr", {}, el("td", { colspan: 6, class: "quiet empty" }, empty))]));
}
