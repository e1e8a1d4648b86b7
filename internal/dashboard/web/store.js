// The state of the page as signals, and the actions that change it. Pages read it; only this module, jobs.js and conversation.js use the connection.

import { Gateway } from "./rpc.js";
import { computed, effect, signal } from "./ui/html.js";

const TOKEN = "laneway.token"; // key in the storage of this tab
const HIDDEN = 60000; // ms; a tab that has been hidden for this time closes its connection

export const link = signal(/** @type {page.Link} */ ({ state: "" }));
export const me = signal(/** @type {page.Me | null} */ (null));
export const message = signal(""); // what the sign-in page shows
export const question = signal(/** @type {page.Question | null} */ (null));
export const fault = signal(""); // why the last action failed
export const now = signal(Date.now());
export const route = signal(parse());
export const live = computed(() => link.value.state === "live");

/** @param {"read" | "write" | "admin"} scope */
export const may = (scope) => me.value?.scopes.some((s) => s === `operator.${scope}` || s === "operator.admin") ?? false;
/** @param {page.Method} method */
export const knows = (method) => me.value?.methods.includes(method) ?? false;

/** @type {Gateway | null} */ let gateway = null;
const connection = () => { if (!gateway) throw new Error("You are not signed in; nothing was done."); return gateway; };
/** @type {page.Call} */
export const call = async (method, ...given) => connection().call(method, ...given);
/** @type {page.Http} */
export const http = async (...given) => connection().http(...given);
/** @type {page.List} */
export const list = async (...given) => connection().list(...given);

/** @type {Resource<any>[]} */ const resources = [];

// Resource is data of the gateway: the last read value, its time, and why the last read failed. Old data stays until new data has arrived.
/** @template T */
export class Resource {
  data = signal(/** @type {T | undefined} */ (undefined)); at = signal(0); fault = signal("");
  #users = 0; #reading = false; #again = false; #timer = 0;

  /** @param {() => Promise<T>} read */
  constructor(read) { this.read = read; resources.push(this); }

  // use is for an effect of a page that shows the resource: it reads now, and follows events until the page is removed.
  use = () => {
    this.#users++;
    this.refresh();
    return () => { this.#users--; };
  };

  // readLater reads after an event; several events cause one read.
  readLater(ms = 300) {
    if (this.#users === 0 || this.#timer) return;
    this.#timer = setTimeout(() => { this.#timer = 0; this.refresh(); }, ms);
  }

  async refresh() {
    if (!live.value || this.#users === 0) return;
    if (this.#reading) { this.#again = true; return; }
    this.#reading = true;
    try {
      this.data.value = await this.read();
      this.at.value = Date.now();
      this.fault.value = "";
    } catch (e) { if (live.value) this.fault.value = e.message; }
    this.#reading = false;
    if (this.#again) { this.#again = false; this.refresh(); }
  }

  forget() { this.data.value = undefined; this.fault.value = ""; }
}

export const search = signal("");
export const health = new Resource(() => call("health"));
export const needs = new Resource(() => call("needs.list"));
export const runsLimit = 100;
export const runs = new Resource(async () => (await call("runs.list", { limit: runsLimit })).runs);
export const status = new Resource(() => call("status"));
export const lanes = new Resource(async () => (await call("lanes.status")).lanes);
export const channels = new Resource(() => call("channels.status"));
export const people = new Resource(async () => (may("admin") && knows("channels.pairing.list") ? call("channels.pairing.list", { extended: true }) : { requests: [], granted: [] }));
export const sessions = new Resource(() => list("sessions.list", "sessions", search.value ? { search: search.value } : { hideCronRuns: true }, 100));
export const hits = new Resource(async () => { // messages with the words of the search, and the present transcripts of their sessions, which the list may not have
  if (!search.value) return { hits: [], hasMore: false, present: new Map() };
  const found = await call("sessions.search", { query: search.value, limit: 20, maxChars: 160 });
  const rows = await Promise.all([...new Set(found.hits.map((h) => h.sessionKey))].map((key) => call("sessions.describe", { key })));
  return { ...found, present: new Map(rows.flatMap(({ session: s }) => (s ? [[s.key, s.sessionId]] : []))) };
});

export const questions = new Resource(async () => (await call("questions.list")).questions);
export const answered = signal(/** @type {{session: string, text: string} | null} */ (null)); // the effect of the last answer to a question of an agent

// answer chooses an option of a question, counted from 1. If another answer came first, the list shows it.
/** @param {wire.Question} q @param {number} option */
export async function answer(q, option) {
  try {
    const { text } = await call("questions.answer", { id: q.id, option });
    answered.value = { session: q.sessionKey, text };
  } finally { questions.refresh(); needs.refresh(); }
}

// explain reads what happened to a slot: at is a time in words, or "" for the newest past slot.
/** @param {string} id @param {string} at */
export const explain = (id, at) => call("cron.explain", at ? { id, at } : { id });

// jobsOf finds the jobs of a question such as "digest yesterday 9:00": a name, then a time of at most three words. A whole name takes precedence over a part of
// a name, and a longer name over a shorter one.
/** @param {string} text */
export async function jobsOf(text) {
  const words = text.split(/\s+/);
  const splits = await Promise.all(Array.from({ length: Math.min(4, words.length) }, async (_, n) => {
    const name = words.slice(0, words.length - n).join(" ");
    return { name, at: words.slice(words.length - n).join(" "), jobs: await list("cron.list", "jobs", { query: name, includeDisabled: true, brief: true }, 200) };
  }));
  const named = (/** @type {(name: string, wanted: string) => boolean} */ fits) => splits.map((s) => ({ ...s, jobs: s.jobs.filter((j) => [j.id, j.name, j.displayName].some((n) => n && fits(n.toLowerCase(), s.name.toLowerCase()))) })).find((s) => s.jobs.length > 0);
  return named((a, b) => a === b) ?? named((a, b) => a.includes(b)) ?? { ...splits.at(-1), jobs: [] };
}

// listeners are called with every event.
/** @type {Set<page.Listener>} */
export const listeners = new Set();

/** @type {page.Listener} */
const onEvent = (name, payload) => {
  if (name === "lanes") { lanes.data.value = payload.lanes; lanes.at.value = Date.now(); status.readLater(1000); runs.readLater(500); }
  if (name === "health") { health.readLater(); needs.readLater(); }
  if (name === "sessions.changed") { sessions.readLater(250); status.readLater(1000); runs.readLater(500); }
  if (name === "cron") { status.readLater(1000); needs.readLater(2000); }
  if (name === "questions.changed") { questions.readLater(50); needs.readLater(50); }
  if (name === "tick") { questions.readLater(); needs.readLater(); runs.readLater(); status.readLater(); channels.readLater(); people.readLater(); }
  for (const l of listeners) /** @type {any} */ (l)(name, payload);
};

// on opens a connection and handles its state, its events and its end.
/** @param {string} token @param {(g: Gateway, hello: wire.HelloOK) => void} up @param {(why: string) => void} refused */
function follow(token, up, refused) {
  /** @type {Gateway} */ const g = new Gateway(token, {
    up: (hello) => up(g, hello),
    refused: (why) => refused(why),
    link: (l) => {
      if (g !== gateway) return;
      const before = link.value.state;
      link.value = { ...l, since: l.since ?? link.value.since };
      if (l.state === "live" && before !== "live") readAll();
    },
    event: (...event) => { if (g === gateway) onEvent(...event); },
  });
  return g;
}

// followTurns is for an effect of a page that shows turns. Until the page is removed, the gateway sends the events of one session, and for other sessions only
// that something has changed.
/** @param {string} key */
export function followTurns(key) {
  if (!live.value) return undefined;
  call("sessions.subscribe", { deltas: false, deltasOf: key }).catch(() => {});
  return () => { if (live.value) call("sessions.unsubscribe").catch(() => {}); };
}

// readAll reads everything that the page shows, once after a reconnect.
function readAll() {
  for (const r of resources) r.refresh();
  for (const l of listeners) l("reconnected", {});
}

/** @param {wire.HelloOK} hello */
const who = (hello) => ({
  name: hello.auth.name ?? "unnamed", scopes: hello.auth.scopes, methods: hello.features.methods, mainKey: hello.snapshot.sessionDefaults.mainSessionKey,
});

/** @param {string} token @param {wire.HelloOK} hello */
function welcome(token, hello) {
  sessionStorage.setItem(TOKEN, token);
  message.value = "";
  me.value = who(hello);
}

// signIn uses a token that was typed or is stored in this tab.
/** @param {string} token */
export function signIn(token) {
  gateway?.close();
  link.value = { state: "connecting" };
  gateway = follow(token, (_, hello) => welcome(token, hello), signOut);
  gateway.open();
}

export function signOut(why = "") {
  sessionStorage.removeItem(TOKEN);
  gateway?.close();
  gateway = null;
  me.value = null;
  link.value = { state: "" };
  message.value = why;
  for (const r of resources) r.forget();
}

// ask connects with a token from a link and shows the name of its credential. Any site can make such a link, so nothing is stored or shown before the
// person has confirmed it.
/** @param {string} token @param {string | null} kept */
function ask(token, kept) {
  const done = (/** @type {Gateway} */ g, /** @type {boolean} */ use) => {
    question.value = null;
    g.close();
    if (use) { signOut(); signIn(token); } else if (!me.value && kept) signIn(kept);
  };
  const g = follow(token, (_, hello) => {
    question.value = { ...who(hello), kept: Boolean(kept), take: () => done(g, true), leave: () => done(g, false) };
  }, (why) => { if (kept) { fault.value = `The token of the link was not used. ${why}`; if (!me.value) signIn(kept); } else message.value = why; });
  g.open();
}

// A token in the fragment is read once and removed at once, so that no bookmark contains it.
function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  const kept = sessionStorage.getItem(TOKEN);
  if (given) history.replaceState(null, "", location.pathname);
  route.value = parse();
  if (given && given !== kept) ask(given, kept);
  else if (kept && !me.value) signIn(kept);
}

function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page, ...rest] = path.split("/");
  return { page, query: new URLSearchParams(query), rest: rest.map((r) => { try { return decodeURIComponent(r); } catch { return r; } }) };
}

export const retry = () => gateway?.retry();

// start connects the signals to the browser: the address, the clock, the visibility of the tab.
export function start() {
  addEventListener("hashchange", begin);
  let asleep = 0;
  setInterval(() => { if (!document.hidden) now.value = Date.now(); }, 1000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(asleep);
    if (document.hidden) { asleep = setTimeout(() => { if (me.value) gateway?.pause(); }, HIDDEN); return; }
    now.value = Date.now();
    if (link.value.state === "paused") gateway?.open();
    else if (live.value || link.value.state === "stale") gateway?.check();
  });
  /** @type {Record<string, string>} */ const titles = { stale: "not answering · laneway", offline: "offline · laneway" };
  const icon = /** @type {HTMLLinkElement} */ (document.getElementById("icon"));
  effect(() => {
    const state = me.value ? link.value.state : "";
    document.title = titles[state] ?? "laneway";
    document.documentElement.dataset.link = state;
    icon.href = titles[state] ? "icon-off.svg" : "icon.svg";
  });
  begin();
}
