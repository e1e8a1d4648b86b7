// People: pairing requests of bots, and who may talk. A code is never shown here; it is between the person and the operator.

import { call, now, people } from "../store.js";
import { html, useEffect } from "../ui/html.js";
import { Act, Loading, Table } from "../ui/parts.js";
import { ago, plain, when } from "../ui/text.js";

export function People() {
  useEffect(people.use, []);
  const p = people.data.value;
  if (!p) return html`<${Loading} of=${people} what="the pairing requests"/>`;
  return html`<${Loading} of=${people} what="the pairing requests"/>
    <section aria-labelledby="requests"><h2 id="requests">Requests</h2>
      <${Table} label="Requests" heads=${["Name", "Number", "Bot", "Asked", "Valid until", ""]} rows=${p.requests.map(request)}
        empty="No requests. A person who writes to a bot for the first time appears here."/></section>
    <section aria-labelledby="granted"><h2 id="granted">May talk</h2>
      <${Table} label="May talk" heads=${["Name", "Number", "Bot", "Since", "Approved by", ""]} rows=${(p.granted ?? []).map(grant)}
        empty="Only the people of the configuration."/></section>`;
}

/** @template {page.Method} M @param {M} method @param {page.Given<M>} given */
const change = (method, ...given) => async () => { await call(method, ...given); await people.refresh(); };

/** @param {wire.PairingRequest | wire.PairingGrant} p @param {any[]} rest */
const person = (p, ...rest) => [plain(p.senderLabel), html`<code>${plain(p.senderId)}</code>`, `${plain(p.channelLabel)} ${plain(p.accountId)}`, ...rest];

/** @param {wire.PairingRequest} r */
function request(r) {
  const which = { channel: r.channel, accountId: r.accountId, requestId: r.requestId };
  return {
    id: r.requestId, cells: person(r, ago(Date.parse(r.createdAt), now.value), when(Date.parse(r.expiresAt), now.value)),
    acts: html`<${Act} class="primary" run=${change("channels.pairing.approve", which)}>Approve<//> <${Act} run=${change("channels.pairing.dismiss", which)}>Dismiss<//>`,
  };
}

/** @param {wire.PairingGrant} g */
function grant(g) {
  return {
    id: `${g.channel}/${g.accountId}/${g.senderId}/${g.chatId}`, cells: person(g, ago(Date.parse(g.approvedAt), now.value), plain(g.approvedBy)),
    acts: html`<${Act} run=${change("channels.pairing.revoke", { channel: g.channel, accountId: g.accountId, senderId: g.senderId })}>Revoke<//>`,
  };
}
