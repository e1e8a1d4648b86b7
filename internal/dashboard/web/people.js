// People: who asks to be let in to a bot, and who was. A code is never shown here; it is between the person and the operator.

import { ago, el, when } from "./dom.js";

const ASKING = ["Name", "Number", "Bot", "Asked", "Until", ""];
const GRANTED = ["Name", "Number", "Bot", "Since", "Let in by", ""];

export class People {
  constructor(root, gateway) {
    this.gateway = gateway;
    this.asking = el("tbody");
    this.granted = el("tbody");
    this.fault = el("p", { class: "fault", role: "alert" });
    root.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, "They ask to be let in"), this.fault, table(ASKING, this.asking)),
      el("div", { class: "card" }, el("h2", {}, "They may talk"), table(GRANTED, this.granted)),
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
      fill(this.asking, got.requests.map((r) => this.request(r)), "No requests. A person who writes to a bot for the first time appears here.");
      fill(this.granted, (got.granted ?? []).map((g) => this.grant(g)), "None, besides those in the configuration.");
    } catch (fault) { this.fault.textContent = fault.message; }
  }

  request(r) {
    const which = { channel: r.channel, accountId: r.accountId, requestId: r.requestId };
    return person(ASKING, r, ago(Date.parse(r.createdAt)), when(Date.parse(r.expiresAt)),
      el("button", { type: "button", class: "primary", onclick: () => this.act("channels.pairing.approve", which) }, "Let in"),
      el("button", { type: "button", class: "plain", onclick: () => this.act("channels.pairing.dismiss", which) }, "Dismiss"));
  }

  grant(g) {
    return person(GRANTED, g, ago(Date.parse(g.approvedAt)), g.approvedBy,
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
  return el("div", { class: "scroll" }, el("table", { class: "cards people" }, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))), rows));
}

// person is one row. On a narrow screen it stands as a card, where the heads of the columns are beside the values.
function person(heads, p, since, last, ...acts) {
  const cells = [p.senderLabel, el("code", {}, p.senderId), `${p.channelLabel} ${p.accountId}`, since, last];
  return el("tr", {}, ...cells.map((c, i) => el("td", { "data-head": heads[i] }, c)), el("td", { class: "acts" }, ...acts));
}

function fill(body, rows, empty) {
  body.replaceChildren(...(rows.length > 0 ? rows : [el("tr", {}, el("td", { colspan: 6, class: "quiet empty" }, empty))]));
}
