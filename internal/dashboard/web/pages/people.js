// People: pairing requests of bots, and the people who may write to them. A pairing code is never shown here; the person gives it to the operator.

import { offer } from "../jobs.js";
import { call, now, people } from "../store.js";
import { html, useEffect, useSignal } from "../ui/html.js";
import { Act, Dialog, Loading, Table } from "../ui/parts.js";
import { ago, plain, when } from "../ui/text.js";
import { Undo } from "./jobs.js";

export function People() {
  useEffect(people.use, []);
  const asked = useSignal(/** @type {wire.PairingRequest | null} */ (null)), ask = (/** @type {wire.PairingRequest} */ r) => { asked.value = r; };
  const p = people.data.value;
  if (!p) return html`<${Loading} of=${people} what="the pairing requests"/>`;
  return html`<${Loading} of=${people} what="the pairing requests"/>
    <section aria-labelledby="requests"><h2 id="requests">Requests</h2>
      <${Table} label="Requests" heads=${["Name", "Number", "Bot", "Asked", "Valid until", ""]} rows=${p.requests.map((r) => request(r, ask))}
        empty="No requests. A person who writes to a bot for the first time appears here."/></section>
    <section aria-labelledby="granted"><h2 id="granted">May talk</h2>
      <${Table} label="May talk" heads=${["Name", "Number", "Bot", "Since", "Approved by", ""]} rows=${(p.granted ?? []).map(grant)}
        empty="Only the people of the configuration."/></section>
    <${Undo}/>${asked.value && html`<${Approve} of=${asked.value} close=${() => { asked.value = null; }}/>`}`;
}

/** @template {page.Method} M @param {M} method @param {page.Given<M>} given */
const change = (method, ...given) => async () => { await call(method, ...given); await people.refresh(); };

/** @param {wire.PairingRequest | wire.PairingGrant} p @param {any[]} rest */
const person = (p, ...rest) => [plain(p.senderLabel), html`<code>${plain(p.senderId)}</code>`, `${plain(p.channelLabel)} ${plain(p.accountId)}`, ...rest];

/** @param {wire.PairingRequest} r */
const named = (r) => ({ channel: r.channel, accountId: r.accountId, requestId: r.requestId });

// Approve names the right that a person gets. It can be taken back at any time, and with one press for ten seconds.
/** @param {{of: wire.PairingRequest, close: () => void}} props */
function Approve({ of: r, close }) {
  const bad = useSignal(""), { channel, accountId, senderId, senderLabel } = r;
  const sure = async () => {
    try {
      await change("channels.pairing.approve", named(r))();
      offer(`${senderLabel} may talk.`, change("channels.pairing.revoke", { channel, accountId, senderId }));
      close();
    } catch (e) { bad.value = e.message; }
  };
  return html`<${Dialog} title=${`Let ${plain(senderLabel)} talk?`} onClose=${close}>
    <ul><li>The person with the number ${plain(senderId)} may write to the agent in their private chat with the bot ${plain(r.channelLabel)} ${plain(accountId)}, and stop and reset that conversation.</li>
      <li>They get a message about it.</li><li>Anyone can show any name. Approve only if you know that this number asks.</li></ul>
    <p class="fault" role="alert">${plain(bad.value)}</p>
    <div class="buttons"><${Act} id="sure" class="primary" run=${sure}>Approve<//><button type="button" onClick=${close}>Cancel</button></div><//>`;
}

/** @param {wire.PairingRequest} r @param {(r: wire.PairingRequest) => void} ask */
function request(r, ask) {
  return {
    id: r.requestId, cells: person(r, ago(Date.parse(r.createdAt), now.value), when(Date.parse(r.expiresAt), now.value)),
    acts: html`<${Act} class="primary" run=${() => ask(r)}>Approve…<//> <${Act} run=${change("channels.pairing.dismiss", named(r))}>Dismiss<//>`,
  };
}

/** @param {wire.PairingGrant} g */
function grant(g) {
  return {
    id: `${g.channel}/${g.accountId}/${g.senderId}/${g.chatId}`, cells: person(g, ago(Date.parse(g.approvedAt), now.value), plain(g.approvedBy)),
    acts: html`<${Act} run=${change("channels.pairing.revoke", { channel: g.channel, accountId: g.accountId, senderId: g.senderId })}>Revoke<//>`,
  };
}
