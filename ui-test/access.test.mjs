// Each page when it is empty, offline, without its database and under a dialog; narrow, magnified, in forced colours and with reduced motion; and the controls
// that are shown for each set of rights.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { clean, closeBrowser, findings, go, live, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, eventually } from "./gateway.mjs";
import { telegram } from "./telegram.mjs";

const PAGES = ["overview", "chat", "chat/agent:main:main", "jobs", "jobs?new", "jobs/no-such-job", "people"];
// Colours and widths are independent of each other, so each has both values once.
const VIEWS = [[1440, 900, "light"], [320, 640, "dark"]];
const HOSTILE = "<img src=x onerror=alert(1)>\u202egpj.exe"; // names with such characters are refused
const TABLE = JSON.parse(readFileSync(new URL("../docs/protocol.json", import.meta.url), "utf8")).methods;
const LEVELS = ["operator.read", "operator.write", "operator.admin"];

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => document.querySelector(s)?.textContent.includes(w), [selector, words]);

async function check(p, what) {
  for (const [width, height, colorScheme] of VIEWS) {
    await p.setViewportSize({ width, height });
    await p.emulateMedia({ colorScheme });
    assert.deepEqual(await outside(p), [], `${what} at ${width}`);
    assert.deepEqual(await findings(p), [], `${what} at ${width}, ${colorScheme}`);
  }
}

async function checkPages(p, what, ready) {
  for (const page of PAGES) {
    await go(p, `#/${page}`);
    await p.waitForFunction(ready);
    await check(p, `${page}, ${what}`);
  }
}

describe("the pages of a gateway", () => {
  let g, p;
  before(async () => {
    g = await Gateway.start("sqlite", { agent: "main: {runner: echo, chunk: 1, chunk_delay: 300ms}" });
    p = await open();
    await signIn(p, g.url, TOKEN);
  });
  after(() => g.stop());

  test("are accessible when they are empty", () => checkPages(p, "empty", () => document.querySelector("main .empty, main form.job, main #why-hint")));

  test("are accessible under each dialog", async () => {
    await g.cli("cron", "add", "--name", "digest <img src=x onerror=alert(1)>", "--every", "24h", "--message", HOSTILE);
    await go(p, "#/jobs");
    await p.click("tr .pause");
    await p.waitForSelector("dialog[open]");
    await check(p, "the pause of a job");
    assert.equal(await p.locator("#app :is(table, dialog) img").count(), 0, "a name became an element");
    await p.keyboard.press("Escape");
    await go(p, "#/chat/agent:main:main");
    await p.fill("textarea", "a long answer ".repeat(40));
    await p.press("textarea", "Enter");
    for (const id of ["#stopall", "#reset"]) {
      await p.click(id);
      await p.waitForSelector("dialog[open]");
      await check(p, id);
      await p.keyboard.press("Escape");
      await p.waitForSelector("dialog", { state: "detached" });
    }
    await p.click("#stop");
    await p.waitForSelector("#stop", { state: "detached" });
    clean(p);
  });

  test("have room for their content at 1280 pixels and 400 %", async () => {
    await p.setViewportSize({ width: 320, height: 225 });
    for (const page of PAGES) {
      await go(p, `#/${page}`);
      await p.waitForFunction(() => document.querySelector("main :is(.item, tbody tr, .bubble, form, .empty)"));
      assert.deepEqual(await outside(p), [], page);
      const covered = await p.evaluate(() => [...document.querySelectorAll(".bar, .bar nav")].filter((n) => ["fixed", "sticky"].includes(getComputedStyle(n).position)).reduce((sum, n) => sum + n.getBoundingClientRect().height, 0));
      assert.ok(covered <= 56, `${page}: ${covered} of 225 pixels are covered by what does not scroll`);
      const log = await p.evaluate(() => document.querySelector(".log")?.checkVisibility() ? document.querySelector(".log").clientHeight : 225);
      assert.ok(log >= 120, `${page}: the messages have ${log} pixels`);
    }
  });

  test("show states, choices and the focus in forced colours, and move nothing with reduced motion", async () => {
    await p.setViewportSize({ width: 1440, height: 900 });
    await p.emulateMedia({ forcedColors: "active", reducedMotion: "reduce" });
    for (const page of PAGES) {
      await go(p, `#/${page}`);
      await p.waitForFunction(() => document.querySelector("main :is(.item, tbody tr, .bubble, form, .empty)"));
      assert.deepEqual(await p.$$eval(".mark", (marks) => marks.map((m) => m.textContent.trim()).filter((t) => !/^\S \S/.test(t) && !/^.$/u.test(t))), [], `${page}: a state without a shape and a word`);
      assert.deepEqual(await p.$$eval("[aria-current]", (all) => all.filter((n) => n.getClientRects().length > 0 && getComputedStyle(n).outlineStyle === "none" && getComputedStyle(n).borderStyle === "none").map((n) => n.textContent)), [], `${page}: a choice that only a colour shows`);
      const bars = await p.$$eval(".slots", (all) => all.map((s) => [getComputedStyle(s).backgroundColor, getComputedStyle(s.querySelector("rect")).fill]));
      assert.ok(bars.every(([back, fill]) => back !== fill), `${page}: ${bars}`);
      await p.evaluate(() => { document.activeElement?.blur(); });
      for (let n = 0; n < 12; n++) {
        await p.keyboard.press("Tab");
        const focus = await p.evaluate(() => { const n = document.activeElement, s = getComputedStyle(n); return { at: `${n.tagName} ${n.id} ${n.textContent.slice(0, 20)}`, seen: n === document.body || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 }; });
        assert.ok(focus.seen, `${page}: the focus is not seen at ${focus.at}`);
      }
      assert.deepEqual(await p.evaluate(() => [...document.querySelectorAll("*")].filter((n) => { const s = getComputedStyle(n); return s.animationName !== "none" || s.transitionDuration !== "0s"; }).map((n) => n.tagName)), [], page);
    }
    await p.emulateMedia({ forcedColors: null, reducedMotion: null });
  });

  test("are accessible while the gateway is down", async () => {
    await p.reload();
    await live(p);
    await g.kill();
    await shows(p, "#link", "offline since");
    await checkPages(p, "offline", () => document.querySelector("main .asof"));
    await g.serve();
    await live(p);
    await p.context().close();
  });
});

if (ENGINES.includes("postgres")) {
  test("the pages are accessible while the database is away, and recover", async () => {
    const g = await Gateway.start("postgres"), p = await open();
    const allow = (yes) => execFileSync("psql", [process.env.TEST_DATABASE_URL, "-qc", `alter database ${g.database} allow_connections ${yes}`, "-c", `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${g.database}'`], { stdio: "ignore" });
    await signIn(p, g.url, TOKEN);
    await shows(p, "#link", "healthy");
    allow(false);
    await shows(p, "#link", "not healthy");
    for (const page of ["jobs", "chat/agent:main:main", "people", "overview"]) {
      await go(p, `#/${page}`);
      await p.waitForFunction(() => document.querySelector("main .fault:not(:empty)"));
      await check(p, `${page}, without the database`);
    }
    allow(true);
    await go(p, "#/jobs");
    await p.waitForFunction(() => document.querySelector("main .empty") && !document.querySelector("main .fault:not(:empty)"));
    await p.context().close();
    await g.stop();
  });
}

// A control is shown where the table of methods allows its call: by the scope of the method, or by the scope for owners in the caller's own session. On each page
// every button belongs to a row of this table or to FREE. The buttons in FREE change nothing and read only what the page may read.
const CONTROLS = [
  ["jobs", "#new-job", "cron.add"], ["jobs", "tr .run", "cron.run"], ["jobs", "tr .pause:has-text('Pause')", "cron.pause"], ["jobs", "tr .pause:has-text('Resume')", "cron.resume"], ["jobs", "tr .stop", "cron.cancel"],
  ["jobs", "tr .menu summary", "cron.remove"], ["jobs", "tr .menu .danger", "cron.remove"], ["jobs", "tr .menu button:has-text('command')", "cron.add"],
  ["job", "#edit", "cron.update"], ["job", ".title .run", "cron.run"], ["job", ".title .pause", "cron.pause"], ["job", ".title .stop", "cron.cancel"], ["job", ".title .menu :is(summary, button)", "cron.remove"],
  ["paused", "#edit", "cron.update"], ["paused", ".title .run", "cron.run"], ["paused", ".title .pause", "cron.resume"], ["paused", ".title .menu :is(summary, button)", "cron.remove"],
  ["paused", "#why-answer button:has-text('Resume')", "cron.resume"], ["form", "#save", "cron.add"], ["form", "#save-paused", "cron.add"], ["form", "#job-more summary", "cron.add"], ["form", ".command button", "cron.add"],
  ["own", "#send", "chat.send"], ["own", ".compose [aria-label='Attach files']", "chat.send"], ["own", ".find button", "chat.send"], ["own", "#reset", "sessions.reset"], ["own", "#stop", "chat.abort"], ["own", "#stopall", "chat.abort"], ["own", ".queue button", "chat.abort"],
  ["theirs", "#send", "chat.send"], ["theirs", ".compose [aria-label='Attach files']", "chat.send"], ["theirs", ".find button", "chat.send"], ["theirs", "#reset", "sessions.reset"], ["theirs", "#stop", "chat.abort"], ["theirs", "#stopall", "chat.abort"], ["theirs", ".queue button", "chat.abort"],
  ["telegram", "#intrude", "chat.send"], ["telegram", ".find button", "chat.send"], ["telegram", "#reset", "sessions.reset"],
  ["asked", ".question .answers button", "questions.answer"], ["asked", "#send", "chat.send"], ["asked", ".compose [aria-label='Attach files']", "chat.send"], ["asked", ".find button", "chat.send"], ["asked", "#reset", "sessions.reset"], ["asked", "#stop", "chat.abort"], ["asked", "#stopall", "chat.abort"],
  ["overview", "table[aria-label=Now] .acts button", "chat.abort"], ["overview", ".needs .answers button", "questions.answer"], ["overview", ".needs a[href='#/people']", "channels.pairing.list"],
  ["people", "button:has-text('Approve')", "channels.pairing.approve"], ["people", "button:has-text('Dismiss')", "channels.pairing.dismiss"], ["people", "button:has-text('Revoke')", "channels.pairing.revoke"],
];
const FREE = ":is(.call summary, .cost summary, .link-like, #older, #newest)";
const MINE = ["own", "asked"]; // places in which the caller owns the session
const programs = (name) => `[${process.execPath}, ${new URL(name, import.meta.url).pathname}]`;

test("each set of rights shows the controls that the table of methods allows, and no other", async (t) => {
  const bots = await telegram();
  const g = await Gateway.start("sqlite", {
    agent: `main: {runner: echo, chunk: 1, chunk_delay: 2s}\n  quick: {runner: echo}\n  asking: {runner: acp, command: ${programs("asking.mjs")}, question_timeout: 10m}`,
    more: `default_agent: main\n${bots.settings.replace("poll_timeout", "agent: quick, poll_timeout")}`,
  });
  t.after(async () => { await g.stop(); bots.close(); });
  const people = async () => JSON.parse(await g.cli("pair", "list", "--json"));
  bots.write(4711, "Anna", "hello");
  await g.cli("pair", "approve", (await eventually("Anna asks", async () => (await people()).requests[0])).requestId);
  bots.write(4711, "Anna", "hello again");
  bots.write(4712, "Otto", "hello");
  await eventually("Otto asks", async () => (await people()).requests[0]);
  const long = "a long answer ".repeat(40), theirs = "agent:main:theirs";
  for (const name of ["digest", "holidays"]) await g.cli("cron", "add", "--name", name, "--every", "24h", "--message", long);
  const ids = Object.fromEntries(JSON.parse(await g.cli("cron", "list", "--json")).jobs.map((j) => [j.name, j.id]));
  await g.cli("cron", "pause", "holidays", "--note", "away");
  await g.cli("cron", "run", "digest");
  for (let n = 0; n < 2; n++) g.cli("send", "--session", theirs, long).catch(() => {}); // they end with the gateway
  const secrets = { "operator.read": READER, "operator.write": await g.cli("token", "create", "writer", "--scope", "write"), "operator.admin": TOKEN };
  for (const [scope, secret] of Object.entries(secrets)) {
    const p = await open(), may = (needed) => LEVELS.indexOf(scope) >= LEVELS.indexOf(needed), name = scope.split(".")[1];
    await signIn(p, g.url, secret);
    const write = async (...texts) => { for (const text of may("operator.write") ? texts : []) { await p.fill("textarea", text); await p.press("textarea", "Enter"); } };
    // Each place: its address, what it shows to every caller, and what is typed there first.
    const places = {
      jobs: ["#/jobs", "tr .shape.running"], job: [`#/jobs/${ids.digest}`, ".title .shape.running"], paused: [`#/jobs/${ids.holidays}?why=`, "#why-answer .sentence"],
      form: ["#/jobs?new", may("operator.admin") ? "form.job #save" : "table.jobs"], own: [`#/chat/agent:main:of-${name}`, may("operator.write") ? ".queue li" : ".log .empty:has-text('No messages')", long, long],
      theirs: [`#/chat/${theirs}`, ".queue li"], telegram: ["#/chat/agent:quick:telegram:direct:4711", ".bubble.assistant"],
      asked: [`#/chat/agent:asking:of-${name}`, may("operator.write") ? ".question" : ".log .empty:has-text('No messages')", "make deploy"],
      overview: ["#/overview", "table[aria-label=Now] .shape.running"], people: ["#/people", may("operator.admin") ? "table[aria-label=Requests]" : "table[aria-label=Now]"],
    };
    for (const [place, [address, ready, ...texts]] of Object.entries(places)) {
      await go(p, address);
      if (texts.length > 0) { await p.waitForSelector(".log .empty:has-text('No messages')"); await write(...texts); }
      await p.waitForSelector(ready);
      const shown = place === "people" && !may("operator.admin") ? "overview" : place === "form" && !may("operator.admin") ? "jobs" : place;
      for (const [, selector, method] of CONTROLS.filter(([at]) => at === place)) {
        const m = TABLE.find((one) => one.name === method), needed = MINE.includes(place) ? m.ownerScope ?? m.scope : m.scope;
        if (may(needed)) await p.waitForSelector(`main ${selector}, #nav ${selector}`, { state: "attached" });
        else assert.equal(await p.locator(`main ${selector}`).count(), 0, `${scope}: ${selector} on ${place} calls ${method}, which needs ${needed}`);
      }
      for (const [, selector] of CONTROLS.filter(([at]) => at === shown)) await p.locator(`main ${selector}`).evaluateAll((all) => { for (const n of all) n.dataset.known = ""; });
      const others = await p.locator(`main :is(button, summary, a.button):not([data-known], ${FREE})`).evaluateAll((all) => all.map((n) => n.outerHTML));
      assert.deepEqual(others, [], `${scope}: a control of ${place} is in no row`);
    }
    clean(p);
    await p.context().close();
  }
});

test("a wrong, an expired and a revoked token each get their own sentence", async () => {
  const g = await Gateway.start();
  const token = async (name, ...rest) => g.cli("token", "create", name, "--scope", "read", ...rest);
  const p = await open();
  p.origin = new URL(g.url).origin;
  const fault = async (secret) => {
    await p.fill("#token", secret);
    await p.click("form button.primary");
    await eventually("the page shows a sentence", async () => await p.locator("#token").count() > 0 && (await p.textContent("#signin-fault")) !== "");
    return p.textContent("#signin-fault");
  };
  await p.goto(`${g.url}/dashboard`);
  assert.match(await fault("a-wrong-token-0123456789-abcdefgh"), /^This token is not valid here: it is wrong/);
  const short = await token("short", "--expires", "5s");
  await p.fill("#token", short);
  await p.click("form button.primary");
  await shows(p, "#signin-fault", "This token has expired.");
  assert.match(await fault(short), /^This token has expired\. Run: laneway dashboard$/);
  await p.fill("#token", await token("gone"));
  await p.click("form button.primary");
  await live(p);
  await g.cli("token", "revoke", "gone");
  await shows(p, "#signin-fault", "This token was revoked");
  await p.context().close();
  await g.stop();
});
