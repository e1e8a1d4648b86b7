// "Why did my 9:00 job not run?" on the page of the real binary in Chromium: by pointer and by keyboard alone, wide and narrow, in the words of the command line.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, go, live, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, eventually } from "./gateway.mjs";

const WIDE = { width: 1440, height: 900 }, NARROW = { width: 390, height: 844 };
const CLUSTER = "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\n";

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => document.querySelector(s)?.textContent.includes(w), [selector, words]);
const answer = async (p) => {
  await p.waitForSelector("#why-answer .sentence");
  return p.evaluate(() => Object.fromEntries(["strong", ".sentence", ".cure"].map((s) => [s, document.querySelector(`#why-answer ${s}`)?.textContent ?? ""])));
};

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g, digest, missed;
    const printed = async (...args) => (await g.cli("cron", "why", ...args)).split("\n");
    const runs = async (...args) => JSON.parse(await g.cli("cron", "runs", "ping", "--json", ...args)).entries;
    before(async () => {
      g = await Gateway.start(engine, { more: CLUSTER });
      await g.cli("cron", "add", "--name", "digest", "--cron", "0 9 * * *", "--tz", "Europe/Berlin", "--message", "hello");
      await g.cli("cron", "add", "--name", "weekly report", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin", "--message", "hello");
      await g.cli("cron", "add", "--name", "weekly numbers", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin", "--message", "hello");
      await g.cli("cron", "add", "--name", "ping", "--every", "1s", "--missed", "skip", "--message", "ping");
      await eventually("a run of ping has ended", async () => (await runs()).length > 0);
      await g.kill();
      const killed = Date.now();
      await eventually("slots pass while no gateway is there", () => Date.now() - killed > 4_000);
      await g.serve();
      missed = await eventually("the slots of the outage are decided", async () => (await runs()).find((r) => r.outcome === "missed"));
      await g.cli("cron", "pause", "ping", "--note", "holidays");
      digest = JSON.parse(await g.cli("cron", "list", "--all", "--json")).jobs.find((j) => j.name === "digest").id;
    });
    after(() => g.stop());

    for (const viewport of [WIDE, NARROW]) {
      test(`question 2 by keyboard alone at ${viewport.width} px: / digest 9:00 Enter`, async (t) => {
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        const from = Date.now();
        await p.keyboard.press("/");
        await p.keyboard.type("digest 9:00");
        await p.keyboard.press("Enter");
        const got = await answer(p);
        measured(t, "why", Date.now() - from);
        const [first, sentence, cure = ""] = await printed("digest", "9:00");
        assert.ok(first.endsWith(`  ${got.strong}`), `${first}: ${got.strong}`);
        assert.deepEqual([got[".sentence"], got[".cure"]], [sentence, cure.startsWith("What to do") ? cure : ""]);
        assert.equal(await p.evaluate(() => location.hash), `#/jobs/${digest}?why=9%3A00`);
        assert.equal(await p.inputValue("#why"), "9:00");
        assert.equal(await p.evaluate(() => document.activeElement.id), "job");
        await p.reload();
        await live(p);
        assert.deepEqual(await answer(p), got);
        clean(p);
        await p.context().close();
      });

      test(`question 2 by pointer at ${viewport.width} px: jobs, ping, why`, async (t) => {
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        const from = Date.now();
        await p.click('#nav a[href="#/jobs"]');
        await p.click("a:text-is('ping')");
        await p.locator("tr", { hasText: "missed" }).locator("a:has-text('why')").first().click();
        const got = await answer(p);
        measured(t, "pointed", Date.now() - from);
        assert.equal(got.strong, "missed");
        assert.match(got[".sentence"], /No replica fired jobs from /);
        const [, sentence, cure] = await printed("ping", new Date(missed.scheduledForMs).toISOString().replace(/\.\d+/, ""));
        assert.deepEqual([got[".sentence"], got[".cure"]], [sentence, cure]);
        clean(p);
        await p.context().close();
      });
    }

    test("an invalid time and an unknown job are refused at their field, and what was typed stays", async () => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await go(p, `#/jobs/${digest}`);
      await p.fill("#why", "half past nine");
      await p.press("#why", "Enter");
      await shows(p, "#why-fault", "is not a moment; write 9:00");
      assert.ok((await p.locator("#why-fault").textContent()).startsWith("half past nine is not"));
      assert.deepEqual(await p.evaluate(() => [document.activeElement.id, document.activeElement.value, document.activeElement.getAttribute("aria-invalid")]), ["why", "half past nine", "true"]);
      assert.deepEqual(await findings(p), []);
      await p.fill("#why", "9:00");
      await p.press("#why", "Enter");
      await answer(p);
      assert.equal(await p.locator("#why-fault").textContent(), "");
      await go(p, "#/jobs/nothing?why=9%3A00");
      await shows(p, "#why-fault", "nothing");
      assert.equal(await p.locator("#why-answer .sentence").count(), 0);

      await p.keyboard.press("/");
      await p.keyboard.type("<b>nothing</b> 9:00");
      await p.keyboard.press("Enter");
      await shows(p, "#ask-note", "No job has “<b>nothing</b>” in its name.");
      await p.fill("#ask", "weekly monday 9:00");
      await p.keyboard.press("Enter");
      await shows(p, "#ask-note", "2 jobs have “weekly” in their name");
      assert.deepEqual(await findings(p), []);
      await p.click("#ask-note a:has-text('weekly numbers')");
      await shows(p, "#job", "weekly numbers");
      await p.waitForFunction((at) => document.querySelector("#why").value === at, "monday 9:00"); // it is set after the page is drawn
      await answer(p);
      clean(p);
      await p.context().close();
    });

    test("a whole name takes precedence over a part of a name, and Escape returns the focus", async () => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await g.cli("cron", "add", "--name", "digest of the week", "--every", "6h", "--message", "hello");
      await go(p, "#/jobs");
      const link = p.locator("a:text-is('ping')");
      await link.focus();
      await p.keyboard.press("/");
      assert.equal(await p.evaluate(() => document.activeElement.id), "ask");
      await p.keyboard.press("Escape");
      assert.equal(await p.evaluate(() => document.activeElement.textContent), "ping");
      await p.keyboard.press("/");
      await p.keyboard.type("DIGEST yesterday 9:00");
      await p.keyboard.press("Enter");
      await shows(p, "#job", "digest");
      assert.equal(await p.evaluate(() => location.hash), `#/jobs/${digest}?why=yesterday%209%3A00`);
      await answer(p);
      await p.focus("#why");
      await p.keyboard.type("/");
      assert.equal(await p.inputValue("#why"), "yesterday 9:00/");
      await g.cli("cron", "rm", "digest of the week");
      clean(p);
      await p.context().close();
    });

    test("a moment without a slot links to the nearest slots, and the focus stays in the answer", async () => {
      const p = await open();
      await signIn(p, g.url, READER);
      await go(p, `#/jobs/${digest}?why=${encodeURIComponent("2031-03-04 12:34")}`);
      assert.equal((await answer(p)).strong, "not in the schedule");
      const links = p.locator("#why-answer .near a");
      assert.equal(await links.count(), 2);
      await links.nth(1).focus();
      await p.keyboard.press("Enter");
      await p.waitForFunction(() => document.querySelector("#why-answer strong")?.textContent === "not due yet");
      assert.equal(await p.evaluate(() => document.activeElement.id), "why-answer");
      assert.equal(await p.inputValue("#why"), "2031-03-05T09:00:00+01:00");
      const [, sentence] = await printed("digest", "2031-03-05T09:00:00+01:00");
      assert.equal((await answer(p))[".sentence"], sentence);
      await p.goBack();
      await p.waitForFunction(() => document.querySelector("#why-answer strong")?.textContent === "not in the schedule");
      assert.equal(await p.inputValue("#why"), "2031-03-04 12:34");
      clean(p);
      await p.context().close();
    });

    test("an answer leads to its run, and offers what may be done: run the slot, edit, resume", async () => {
      const slot = `#/jobs/${missed.jobId}?why=${encodeURIComponent(new Date(missed.scheduledForMs).toISOString().replace(/\.\d+/, ""))}`;
      const offered = (q) => q.locator("#why-answer .buttons").locator("a, button").allTextContents();
      const reader = await open();
      await signIn(reader, g.url, READER);
      await go(reader, slot);
      await answer(reader);
      assert.deepEqual(await offered(reader), ["See it in the history"]);
      await reader.context().close();

      const p = await open();
      await signIn(p, g.url, TOKEN);
      await go(p, slot);
      assert.equal((await answer(p)).strong, "missed");
      await p.waitForSelector("#why-answer button");
      assert.deepEqual(await offered(p), ["Run this slot…", "Edit the job", "See it in the history"]);
      await p.click("#why-answer a:text-is('See it in the history')");
      await p.waitForFunction(() => document.activeElement.matches("tr.hit") && document.activeElement.textContent.includes("missed"));
      assert.deepEqual(await findings(p), []);
      await p.click("#why-answer button:has-text('Run this slot')");
      await p.waitForSelector("dialog #sure");
      assert.deepEqual(await findings(p), []);
      await p.click("#sure");
      await p.waitForFunction(() => !document.querySelector("dialog"));
      const again = await eventually("the slot has run", async () => (await runs()).find((r) => r.scheduledForMs === missed.scheduledForMs && r.outcome === "ok"));
      assert.equal(again.trigger, "backfill");

      await go(p, `#/jobs/${missed.jobId}?why=`);
      await p.waitForFunction(() => document.querySelector("#why-answer strong")?.textContent === "paused");
      await p.click("#why-answer button:text-is('Resume')");
      await eventually("the job is resumed", async () => JSON.parse(await g.cli("cron", "get", "ping", "--json")).enabled);
      await g.cli("cron", "pause", "ping", "--note", "holidays");
      clean(p);
      await p.context().close();
    });

    test("without a connection no answer of another question is shown, and the page asks when the gateway is back", async () => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await go(p, `#/jobs/${digest}?why=9%3A00`);
      const before = await answer(p);
      await g.kill();
      await shows(p, "#link", "offline since");
      assert.deepEqual(await answer(p), before);
      await p.fill("#why", "2031-03-04 12:34");
      await p.press("#why", "Enter");
      await shows(p, "#why-answer", "The page asks when the gateway answers.");
      assert.equal(await p.locator("#why-answer .sentence").count(), 0);
      await p.fill("#ask", "ping 9:00");
      await p.press("#ask", "Enter");
      await shows(p, "#ask-note", "The gateway is not connected; nothing was done.");
      assert.equal(await p.inputValue("#ask"), "ping 9:00");
      await g.serve();
      await p.waitForFunction(() => document.querySelector("#why-answer strong")?.textContent === "not in the schedule");
      await p.context().close();
    });

    test("an answer fits each screen and has no finding of axe, light and dark", async () => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      for (const fragment of [`#/jobs/${digest}?why=${encodeURIComponent("2031-03-04 12:34")}`, `#/jobs/${missed.jobId}?why=`]) {
        await go(p, fragment);
        await answer(p);
        for (const width of [1440, 1120, 1010, 834, 390, 320]) {
          await p.setViewportSize({ width, height: 844 });
          for (const colorScheme of ["light", "dark"]) {
            await p.emulateMedia({ colorScheme });
            assert.deepEqual(await outside(p), [], `at ${width}`);
            assert.deepEqual(await findings(p), [], `at ${width}, ${colorScheme}`);
            assert.ok(await p.evaluate(() => document.querySelector("#link").offsetHeight < 64), `the state of the connection has no room at ${width}`);
            assert.deepEqual(await p.evaluate(() => [...document.querySelectorAll(".target, .ask input, .why input")].map((n) => n.getBoundingClientRect()).filter((r) => r.height < 24 || r.width < 24).length), 0);
          }
        }
      }
      clean(p);
      await p.context().close();
    });
  });
}
