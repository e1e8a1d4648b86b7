// Each page when it is empty, offline, without its database and under a dialog; narrow, magnified, in forced colours and with reduced motion; and the controls
// that each set of rights draws.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { clean, closeBrowser, findings, go, live, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, eventually } from "./gateway.mjs";

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

// A control is drawn where the table of methods allows its call: by the scope of the method, or by that of an owner in a session of one's own.
const CONTROLS = [
  ["jobs", "#new-job", "cron.add"], ["jobs", "tr .run", "cron.run"], ["jobs", "tr .pause", "cron.pause"], ["jobs", "tr .stop", "cron.cancel"], ["job", "#edit", "cron.update"],
  ["own", "#send", "chat.send"], ["own", "#reset", "sessions.reset"], ["overview", "table[aria-label=Now] .acts button", "chat.abort"], ["overview", "#nav a[href='#/people']", "channels.pairing.list"],
];

test("each set of rights draws the controls that the table of methods allows", async () => {
  const g = await Gateway.start("sqlite", { agent: "main: {runner: echo, chunk: 1, chunk_delay: 2s}" });
  await g.cli("cron", "add", "--name", "digest", "--every", "24h", "--message", "a long answer ".repeat(40));
  const { id } = JSON.parse(await g.cli("cron", "list", "--json")).jobs[0];
  await g.cli("cron", "run", "digest");
  g.cli("send", "--session", "busy", "a long answer ".repeat(40)).catch(() => {}); // it ends with the gateway
  const secrets = { "operator.read": READER, "operator.write": await g.cli("token", "create", "writer", "--scope", "write"), "operator.admin": TOKEN };
  for (const [scope, secret] of Object.entries(secrets)) {
    const p = await open();
    await signIn(p, g.url, secret);
    const places = { jobs: "#/jobs", job: `#/jobs/${id}`, own: `#/chat/agent:main:of-${scope.split(".")[1]}`, overview: "#/overview" };
    for (const [place, address] of Object.entries(places)) {
      await go(p, address);
      if (place === "own" && scope !== "operator.read") {
        await p.fill("textarea", "mine");
        await p.press("textarea", "Enter");
        await p.waitForSelector("#reset");
      }
      await p.waitForSelector({ jobs: "tr .shape.running", job: ".title .shape.running", own: ".bubble, .log .empty:has-text('No messages')", overview: "table[aria-label=Now] .shape.running" }[place]);
      for (const [, selector, method] of CONTROLS.filter(([at]) => at === place)) {
        const m = TABLE.find((one) => one.name === method), needed = place === "own" ? m.ownerScope ?? m.scope : m.scope;
        const allowed = LEVELS.indexOf(scope) >= LEVELS.indexOf(needed);
        assert.equal(await p.locator(selector).count() > 0, allowed, `${scope}: ${selector} on ${place} calls ${method}, which needs ${needed}`);
      }
    }
    clean(p);
    await p.context().close();
  }
  await g.stop();
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
