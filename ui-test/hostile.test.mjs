// Hostile strings on every page of the real binary in Chromium: they become no element, no link and no handler, characters that reverse text are shown as escapes,
// and no page becomes wider. Names of lanes, agents, credentials and processes are not tested: the gateway accepts only letters, digits and dashes there.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { clean, closeBrowser, go, open, openBrowser, outside, signIn } from "./browser.mjs";
import { Gateway, TOKEN } from "./gateway.mjs";
import { telegram } from "./telegram.mjs";

const program = (name) => `[${process.execPath}, ${new URL(name, import.meta.url).pathname}]`;
const AGENTS = `main: {runner: command, command: ${program("agent.mjs")}, output: claude}\n  asking: {runner: acp, command: ${program("asking.mjs")}, question_timeout: 10m}`;
const ELEMENT = "<img src=x onerror=alert(1)>", LINK = "[x](javascript:alert(1))", TURNED = "\u202egpj.exe", SHOWN = "\\u202egpj.exe";
const NAME = `${ELEMENT} ${LINK} ${"w".repeat(120)}`; // the gateway refuses or removes characters that reverse text in a name
const TEXT = `${ELEMENT} ${LINK} <javascript:alert(1)> ${TURNED} ${"w".repeat(60_000)}`;
const NOTE = `${ELEMENT} ${LINK} ${TURNED} ${"w".repeat(400)}`;
const SESSION = `agent:main:${ELEMENT} ${"w".repeat(400)}`, ASKING = "agent:asking:asked";

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => [...document.querySelectorAll(s)].some((n) => n.textContent.includes(w)), [selector, words]);
const address = (key) => `#/chat/${encodeURIComponent(key)}`;
const say = async (p, text) => { await p.fill("textarea", text); await p.press("textarea", "Enter"); };

// made lists the harm of a string: a new element, an address that runs a script, a handler, or a character that reverses text.
const made = (p) => p.evaluate(() => {
  const all = [...document.querySelectorAll("body *")], brief = (n) => n.outerHTML.slice(0, 200);
  const attributes = (n) => n.getAttributeNames().map((name) => [name, n.getAttribute(name)]);
  return [
    ...all.filter((n) => n.matches("#app :is(img, script, iframe, object, embed, style, link, base, meta)") && !n.matches(".brand img, img.picture")),
    ...all.filter((n) => attributes(n).some(([name, value]) => name.startsWith("on") || (["href", "src", "action"].includes(name) && !/^(#|https?:|mailto:|blob:|icon\.svg$)/.test(value)))),
    ...all.filter((n) => attributes(n).some(([, value]) => /[\u202a-\u202e\u2066-\u2069]/.test(value)) || [...n.childNodes].some((c) => c.nodeType === Node.TEXT_NODE && /[\u202a-\u202e\u2066-\u2069]/.test(c.data) && !n.matches("textarea"))),
  ].map(brief);
});

async function check(p, what) {
  for (const width of [1440, 390]) {
    await p.setViewportSize({ width, height: 844 });
    assert.deepEqual(await made(p), [], `${what} at ${width}`);
    assert.deepEqual(await outside(p), [], `${what} at ${width}`);
  }
  await p.setViewportSize({ width: 1440, height: 900 });
}

test("hostile strings in every name, message, error and result become nothing but text, on every page", async (t) => {
  const bots = await telegram(), g = await Gateway.start("sqlite", { agent: AGENTS, more: `default_agent: main\n${bots.settings}` });
  t.after(async () => { await g.stop(); bots.close(); });
  const job = async (...args) => JSON.parse(await g.cli("cron", "add", "--every", "24h", "--json", ...args));
  bots.write(4711, NAME, TEXT.slice(0, 4000));
  await job("--name", `failing ${NAME}`, "--message", `fail ${TEXT}`, "--retries", "0");
  await job("--name", `paused ${NAME}`, "--message", TEXT, "--deliver", `web:${SESSION}`);
  await g.cli("cron", "pause", `paused ${NAME}`, "--note", NOTE);
  for (let n = 0; n < 3; n++) await g.cli("cron", "run", `failing ${NAME}`, "--wait").catch(() => {}); // the command fails with the run
  const { id } = JSON.parse(await g.cli("cron", "list", "--query", "failing", "--json")).jobs[0];

  const p = await open();
  p.on("dialog", (d) => { p.complaints.push(`a dialog: ${d.message()}`); d.dismiss(); });
  await signIn(p, g.url, TOKEN);
  await go(p, address(SESSION));
  await p.waitForSelector(".log .empty");
  await say(p, `tool ${TEXT}`);
  await shows(p, ".bubble.assistant:not(.growing)", ELEMENT);
  await say(p, "fail");
  await shows(p, ".bubble.system", ELEMENT);
  await p.setInputFiles('input[type="file"]', [{ name: `${ELEMENT}${TURNED}`, mimeType: "image/png", buffer: Buffer.from("no picture") }, { name: `${TURNED}${"w".repeat(200)}.html`, mimeType: "text/html", buffer: Buffer.from(ELEMENT) }]);
  await shows(p, ".chip", SHOWN);
  await check(p, "files that are chosen");
  await p.evaluate((name) => {
    const files = new DataTransfer();
    files.items.add(new File([new Uint8Array(20 * 1024 * 1024 + 1)], name));
    document.querySelector(".talk").dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
  }, `${TURNED} ${ELEMENT}`);
  await shows(p, "main > .fault", `${SHOWN} ${ELEMENT} is larger`);
  await check(p, "a file that is refused");
  await say(p, `wait ${TEXT}`);
  await shows(p, ".bubble.growing .text", "working");
  await say(p, `later ${TEXT}`);
  await shows(p, ".queue li", ELEMENT);
  await p.evaluate(() => { for (const d of document.querySelectorAll("details")) d.open = true; });
  await shows(p, ".call pre", SHOWN);
  await check(p, "a conversation");
  await go(p, address(ASKING));
  await p.waitForSelector(".log .empty");
  await say(p, TEXT.slice(0, 3000));
  await shows(p, ".question .answers button", ELEMENT);
  await check(p, "a question");

  // Each view, and an element in it that shows the string.
  const views = [
    ["#/overview", ".needs li", ELEMENT], ["#/overview", ".needs .answers button", ELEMENT], ["#/overview", "table[aria-label=Now] td", ELEMENT], [`#/overview?lane=${encodeURIComponent(NOTE)}`, "section", SHOWN],
    ["#/chat", ".item", ELEMENT], [address(`agent:main:${TURNED}`), ".log .fault", "bidirectional"],
    ["#/jobs", ".jobs td", ELEMENT], ["#/jobs", ".jobs td", SHOWN], [`#/jobs?find=${encodeURIComponent(NOTE.slice(0, 200))}`, "td.empty", "No job fits"],
    [`#/jobs/${id}`, "table[aria-label=Runs] td", ELEMENT], [`#/jobs/${id}`, "#job", ELEMENT], [`#/jobs/${id}?why=${encodeURIComponent(NOTE.slice(0, 60))}`, "#why-fault", ELEMENT],
    [`#/jobs/${id}?edit`, "#job", `Edit failing ${ELEMENT}`], [`#/jobs/${encodeURIComponent(NOTE)}`, "#job", SHOWN], ["#/people", "td", ELEMENT],
  ];
  for (const [fragment, selector, words] of views) {
    await go(p, fragment);
    await shows(p, selector, words);
    await check(p, `${fragment.slice(0, 40)}, ${selector}`);
  }

  await go(p, "#/chat");
  await p.fill('input[type="search"]', ELEMENT);
  await shows(p, ".item.hit", ELEMENT);
  await check(p, "a search");
  await p.fill('input[type="search"]', "");
  await p.fill("#ask", `${TURNED} <img yesterday 9:00`);
  await p.press("#ask", "Enter");
  await shows(p, "#ask-note", SHOWN);
  await check(p, "a question about a job that does not exist");
  await p.fill("#ask", `${ELEMENT} 9:00`);
  await p.press("#ask", "Enter");
  await shows(p, "#ask-note a", ELEMENT);
  await check(p, "a question about one of several jobs");

  await go(p, `#/jobs/${id}`);
  await p.locator("table[aria-label=Runs] a:has-text('why')").first().click();
  await shows(p, "#why-answer .sentence", ELEMENT);
  await check(p, "an answer to why");
  for (const [open, words] of [[() => p.click(".title .pause"), "dialog h2"], [() => p.click(".title .menu summary").then(() => p.click(".title .menu button:has-text('command')")), "dialog #command"], [() => p.click(".title .menu summary").then(() => p.click(".title .menu .danger")), "dialog label"]]) {
    await open();
    await shows(p, words, ELEMENT);
    await check(p, words);
    await p.keyboard.press("Escape");
    await p.waitForSelector("dialog", { state: "detached" });
  }
  await go(p, "#/people");
  await p.click("button:has-text('Approve')");
  await shows(p, "dialog h2", ELEMENT);
  await check(p, "the question before a person may talk");
  await p.click("#sure");
  await shows(p, ".undo", ELEMENT);
  await shows(p, "table[aria-label='May talk'] td", ELEMENT);
  await check(p, "a person who may talk");
  clean(p); // without a gateway the browser complains about the connection
  await g.kill();
  await p.waitForSelector("#link:has-text('offline')");
  await check(p, "a person who may talk, offline");
  await p.context().close();
});
