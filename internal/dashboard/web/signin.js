// The page before the sign-in, and the question about a token from a link.

import { link, message, question, signIn } from "./store.js";
import { html } from "./ui/html.js";
import { Dialog } from "./ui/parts.js";
import { plain } from "./ui/text.js";

export function SignIn() {
  const submit = (/** @type {SubmitEvent & {currentTarget: HTMLFormElement}} */ e) => {
    e.preventDefault();
    const token = String(new FormData(e.currentTarget).get("token")).trim();
    if (token) signIn(token);
  };
  return html`<main class="signin"><form class="card" autocomplete="off" onSubmit=${submit}>
    <img src="icon.svg" alt="" width="40" height="40"/>
    <h1>laneway</h1>
    <p>In a terminal on the gateway's machine:</p>
    <pre><code>laneway dashboard</code></pre>
    <p class="quiet">It opens this page with a token of its own. Or paste a token; it stays in this tab.</p>
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required/>
    <button type="submit" class="primary">Sign in</button>
    <p id="signin-fault" class="fault" role="alert">${link.value.state === "offline" ? plain(`The gateway does not answer: ${link.value.why}.`) : plain(message.value)}</p>
  </form></main>`;
}

/** @param {string[]} scopes */
const rights = (scopes) => scopes.map((s) => s.replace("operator.", "")).join(", ") || "nothing";

export function Question() {
  const q = question.value;
  if (!q) return null;
  return html`<${Dialog} title=${`Sign in as ${plain(q.name)}?`} onClose=${q.leave}>
    <p>This link brings a token. It may: ${rights(q.scopes)}.</p>
    <p>What you write and change will belong to this name. Continue only with a link that you made yourself.</p>
    <p class="buttons"><button type="button" class="primary" id="take" onClick=${q.take}>Sign in as ${plain(q.name)}</button>
      <button type="button" id="leave" autofocus onClick=${q.leave}>${q.kept ? "Keep the token of this tab" : "Do not sign in"}</button></p>
  <//>`;
}
