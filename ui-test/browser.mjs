// Debian's Chromium, and pages that record what must not happen: errors and warnings of the browser, and requests to another origin.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { endGateways } from "./gateway.mjs";

export const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
if (!executablePath) throw new Error("Chromium is not installed; install Debian's chromium, or name one in CHROMIUM");

// WAIT bounds every wait for the page. It is long, so that no test depends on the speed of the machine.
const WAIT = 60_000;

let browser = null;

export async function openBrowser(args = []) { browser = await chromium.launch({ executablePath, args: ["--no-sandbox", ...args] }); return browser; }

export async function closeBrowser() { await browser.close(); await endGateways(); }

export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, bypassCSP: false, ignoreHTTPSErrors: true, ...options });
  const p = await context.newPage();
  p.setDefaultTimeout(WAIT);
  p.complaints = [];
  p.elsewhere = [];
  p.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") p.complaints.push(m.text()); });
  p.on("pageerror", (e) => p.complaints.push(String(e)));
  const own = (address) => p.origin === undefined || [p.origin, p.origin.replace(/^http/, "ws"), `blob:${p.origin}`].some((o) => address.startsWith(o));
  p.on("request", (r) => { if (!own(r.url())) p.elsewhere.push(r.url()); });
  p.on("websocket", (s) => { if (!own(s.url())) p.elsewhere.push(s.url()); });
  return p;
}

// signIn types the token of a credential into the page.
export async function signIn(p, base, token) {
  p.origin = new URL(base).origin;
  await p.goto(`${base}/dashboard`);
  await p.fill("#token", token);
  await p.click("form button.primary");
  await live(p);
}

export const live = (p) => p.waitForFunction(() => document.documentElement.dataset.link === "live");

export async function go(p, fragment) {
  await p.evaluate((f) => { location.hash = f; }, fragment);
}

// clean fails when the browser reported an error or a warning, or the page called another origin.
export function clean(p) {
  assert.deepEqual(p.complaints, [], "the browser reported errors or warnings");
  assert.deepEqual(p.elsewhere, [], "the page called another origin");
}

// inside lists the elements that are wider than the screen.
export const outside = (p) => p.evaluate(() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter((n) => {
    const r = n.getBoundingClientRect();
    return r.width > 0 && (r.right > width + 1 || r.left < -1) && !n.closest(".only-read, thead, pre, .ellipsis");
  });
  return [...(document.documentElement.scrollWidth > width ? [`the page is ${document.documentElement.scrollWidth} wide on ${width}`] : []), ...wide.map((n) => `${n.tagName} ${n.className} ${n.textContent.slice(0, 40)}`)];
});

// findings runs axe with the rules of WCAG 2.2 A and AA and its best practices.
export async function findings(p) {
  await p.evaluate(await import("node:fs").then((fs) => fs.readFileSync(AXE, "utf8")));
  const { violations } = await p.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"] }));
  return violations.flatMap((v) => v.nodes.map((n) => `${v.id} (${v.impact}): ${n.target.join(" ")} ${n.failureSummary?.split("\n")[1]?.trim() ?? ""}`));
}

// caller makes many calls over one connection, in an otherwise empty page: call(method, paramsOfEach) returns the results, and ended counts the runs that
// have ended.
export async function caller(base, token) {
  const p = await open();
  await p.goto(`${base}/dashboard`);
  await p.evaluate((secret) => new Promise((opened, failed) => {
    const socket = new WebSocket(new URL("../ws", location.href.replace(/^http/, "ws"))), waiting = new Map(), ended = new Set();
    let next = 1;
    const call = (method, params) => new Promise((resolve, reject) => {
      const id = String(next++);
      waiting.set(id, { resolve, reject });
      socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
    globalThis.test = { call, ended };
    socket.onmessage = ({ data }) => {
      const f = JSON.parse(data);
      if (f.event === "chat" && f.payload.state !== "delta") ended.add(f.payload.runId);
      if (f.type === "event") return;
      if (f.ok) waiting.get(f.id).resolve(f.payload); else waiting.get(f.id).reject(new Error(f.error.message));
      waiting.delete(f.id);
    };
    socket.onclose = () => failed(new Error("the connection was closed"));
    socket.onopen = () => call("connect", {
      minProtocol: 4, maxProtocol: 4, role: "operator", scopes: ["operator.admin"], client: { id: "ui-test", version: "1", platform: "web", mode: "test" }, auth: { token: secret },
    }).then(() => opened(), failed);
  }), token);
  return {
    call: (method, each) => p.evaluate(([m, all]) => Promise.all(all.map((params) => globalThis.test.call(m, params))), [method, each]),
    ended: () => p.evaluate(() => globalThis.test.ended.size),
    close: () => p.context().close(),
  };
}
