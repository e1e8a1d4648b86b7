// The page: the form for the token, the views, and the connection that they share.

import { $ } from "./dom.js";
import { Jobs } from "./jobs.js";
import { Overview } from "./overview.js";
import { People } from "./people.js";
import { Gateway } from "./rpc.js";
import { Sessions } from "./sessions.js";

const KEPT = "laneway.token"; // in the storage of this tab

let gateway = null;
let views = {};
let shown = null;

// A token in the fragment is taken once and removed at once, so that it stays in no history and no bookmark.
function tokenOfFragment() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) history.replaceState(null, "", location.pathname);
  return found;
}

// A link may bring another token than the one of this tab: any site can make such a link, so the person decides. The result is whether to use it.
function mayReplace() {
  const dialog = $("swap");
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "take"), { once: true });
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
  });
}

async function begin() {
  const kept = sessionStorage.getItem(KEPT);
  const given = tokenOfFragment();
  if (!given || given === kept) return kept;
  return !kept || (await mayReplace()) ? given : kept;
}

function showLogin(message = "") {
  sessionStorage.removeItem(KEPT);
  gateway?.close();
  gateway = null;
  $("signed-in").hidden = true;
  $("signed-out").hidden = false;
  $("login-fault").textContent = message;
  $("token").value = "";
  $("token").focus();
}

function enter(token) {
  $("login-fault").textContent = "";
  link("warn", "connecting");
  gateway = new Gateway(token, {
    up: (hello) => welcome(token, hello),
    down: (why) => link("bad", `${why}; trying again`),
    refused: (why) => showLogin(why),
    event: (name, payload) => Object.values(views).forEach((v) => (v === shown || name === "lanes" || name === "health" ? v.event(name, payload) : null)),
  });
  gateway.open();
}

function welcome(token, hello) {
  sessionStorage.setItem(KEPT, token);
  link("good", "connected");
  $("signed-out").hidden = true;
  $("signed-in").hidden = false;
  const methods = hello.features.methods;
  if (Object.keys(views).length === 0) {
    views = {
      overview: new Overview($("view-overview"), gateway),
      sessions: new Sessions($("view-sessions"), gateway, hello),
      jobs: methods.includes("cron.list") ? new Jobs($("view-jobs"), gateway, hello) : null,
    };
    if (!views.jobs) delete views.jobs;
    if (methods.includes("channels.pairing.list") && hello.auth.scopes.includes("operator.admin")) views.people = new People($("view-people"), gateway);
  }
  for (const v of Object.values(views)) v.gateway = gateway;
  $("nav-jobs").hidden = !views.jobs;
  $("nav-people").hidden = !views.people;
  gateway.call("sessions.subscribe").catch(() => {});
  route();
}

function route() {
  if (!gateway || $("signed-in").hidden) return;
  const asked = location.hash.slice(1);
  const name = Object.hasOwn(views, asked) ? asked : "overview"; // and not what every object has: #constructor, #__proto__
  shown?.hide();
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== `view-${name}`;
  for (const a of $("nav").children) a.setAttribute("aria-current", a.getAttribute("href") === `#${name}` ? "page" : "false");
  shown = views[name];
  shown.show();
}

function link(kind, text) {
  $("link").className = `link ${kind}`;
  $("link").textContent = text;
}

$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  const token = $("token").value.trim();
  if (token) enter(token);
});
$("leave").addEventListener("click", leave);
function leave() {
  shown?.hide();
  shown = null;
  views = {};
  showLogin();
}

// A link to this page that only changes the fragment does not load it again.
addEventListener("hashchange", async () => {
  const kept = sessionStorage.getItem(KEPT);
  const token = await begin();
  if (token === kept) return route();
  leave();
  enter(token);
});

const token = await begin();
if (token) enter(token);
else showLogin();
