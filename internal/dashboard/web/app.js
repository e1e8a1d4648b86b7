// The page: who is signed in, the connection, and one of the pages.

import { Chat } from "./pages/chat.js";
import { Jobs } from "./pages/jobs.js";
import { Overview } from "./pages/overview.js";
import { People } from "./pages/people.js";
import { Ask } from "./pages/why.js";
import { nextTheme, theme } from "./preferences.js";
import { Question, SignIn } from "./signin.js";
import { fault, health, knows, link, live, may, me, needs, now, retry, route, signOut, start } from "./store.js";
import { keepFocus } from "./ui/focus.js";
import { html, useEffect, useRef } from "./ui/html.js";
import { Mark } from "./ui/parts.js";
import { plain, span, time } from "./ui/text.js";
import { render } from "./vendor/preact.js";

const OVERVIEW = { title: "Overview", page: Overview, shown: () => true };
const PAGES = new Map([
  ["overview", OVERVIEW],
  ["chat", { title: "Chat", page: Chat, shown: () => true }],
  ["jobs", { title: "Jobs", page: Jobs, shown: () => knows("cron.list") }],
  ["people", { title: "People", page: People, shown: () => knows("channels.pairing.list") && may("admin") }],
]);

const THEMES = { system: "◐", light: "○", dark: "●" };

function Link() {
  const { state, since = 0, why, retryAt = 0 } = link.value;
  switch (state) {
    case "live": return html`<${Mark} kind="ok">live<//>`;
    case "stale": return html`<${Mark} kind="warn">not answering since ${time(since)} (${span(now.value - since)})<//>`;
    case "offline": return html`<${Mark} kind="error">offline since ${time(since)}: ${plain(why)}${retryAt > now.value ? `, again in ${span(retryAt - now.value)}` : ", connecting"}<//>
      <button type="button" class="plain" onClick=${retry}>now</button>`;
    default: return html`<${Mark} kind="waiting">connecting<//>`;
  }
}

function Health() {
  useEffect(health.use, []);
  useEffect(needs.use, []);
  const h = health.data.value;
  if (!live.value || !h) return null;
  const bad = (h.problems?.length ?? (h.ok ? 0 : 1)) > 0;
  const n = needs.data.value?.needs.filter((need) => need.level !== "hint").length ?? 0;
  return html`<${Mark} kind=${bad ? "error" : "ok"}>${bad ? "not healthy" : "healthy"}<//> ${n > 0 && html`<a class="target" href="#/overview">${n} ${n === 1 ? "needs" : "need"} you</a>`}`;
}

/** @param {{current: string}} props */
function Header({ current }) {
  const rank = ["admin", "write", "read"].find((s) => me.value?.scopes.includes(`operator.${s}`)) ?? "no rights", name = plain(me.value?.name);
  return html`<header class="bar">
    <a class="brand" href="#/overview" aria-label="laneway"><img src="icon.svg" alt="" width="22" height="22"/><span>laneway</span></a>
    <nav id="nav" aria-label="Pages">${[...PAGES].filter(([, p]) => p.shown()).map(([name, p]) => html`<a key=${name} href=${`#/${name}`} aria-current=${name === current ? "page" : undefined}>${p.title}</a>`)}</nav>
    <div id="link" class="link" role="status"><${Health}/><${Link}/></div>
    ${knows("cron.list") && knows("cron.explain") && html`<${Ask}/>`}
    <div class="account"><span id="name" class="ellipsis" title=${`signed in as ${name}, ${rank}`}>${name} · ${rank}</span>
      <button type="button" class="plain" onClick=${nextTheme} aria-label=${`Theme: ${theme.value}`} title=${`Theme: ${theme.value}`}>${THEMES[theme.value]}</button>
      <button type="button" class="plain" id="signout" onClick=${() => signOut()}>Sign out</button></div>
  </header>`;
}

/** @param {{children?: any}} props */
function Main({ children }) {
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => (main.current ? keepFocus(main.current) : undefined), []);
  return html`<main ref=${main}>${children}</main>`;
}

function App() {
  if (!me.value) return html`<${SignIn}/><${Question}/>`;
  const asked = PAGES.get(route.value.page), shown = asked?.shown() ? asked : OVERVIEW;
  const current = shown === asked ? route.value.page : "overview", { title, page: Page } = shown;
  const old = ["stale", "offline"].includes(link.value.state);
  return html`<div class=${`shell on-${current}`}>
    <${Header} current=${current}/>
    <${Main}><h1 class=${current === "chat" ? "only-read" : ""}>${title}</h1>
      ${old && html`<p class="asof">As of ${time(link.value.since)}. Actions are off until the gateway answers.</p>`}
      <p class="fault" role="alert">${plain(fault.value)}</p>
      <${Page} key=${current}/><//>
    <${Question}/></div>`;
}

render(html`<${App}/>`, /** @type {HTMLElement} */ (document.getElementById("app")));
start();
