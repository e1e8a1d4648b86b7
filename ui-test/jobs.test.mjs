// The jobs of the real binary in Chromium, on each engine: the list, its filters and its pages, the actions of a job, and ten thousand jobs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, go, live, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, eventually } from "./gateway.mjs";

const PROGRAM = new URL("agent.mjs", import.meta.url).pathname;
const AGENTS = `main: {runner: echo}\n  other: {runner: command, command: [${process.execPath}, ${PROGRAM}], output: claude}`;

before(() => openBrowser());
after(() => closeBrowser());

const names = (p) => p.locator("table.jobs tbody td:first-child a").allTextContents();
const shown = (p, want) => p.waitForFunction((w) => JSON.stringify([...document.querySelectorAll("table.jobs tbody td:first-child a")].map((a) => a.textContent)) === JSON.stringify(w), want);
const row = (p, name) => p.locator("table.jobs tbody tr", { has: p.locator(`a:text-is('${name}')`) });
const shows = (p, selector, words) => p.waitForFunction(([s, w]) => [...document.querySelectorAll(s)].some((n) => n.textContent.includes(w)), [selector, words]);
const count = (p, condition) => p.locator(`.conditions a:has-text('${condition}') .quiet`).textContent();

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g, weekly;
    before(async () => {
      g = await Gateway.start(engine, { agent: AGENTS, more: "default_agent: main\nlimits: {cron_writes: 0, requests: 0}\n" });
      const job = (name, ...rest) => g.cli("cron", "add", "--name", name, "--message", `run ${name}`, ...rest);
      await job("digest", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo");
      await job("heartbeat", "--every", "6h");
      await job("backup", "--every", "2h", "--agent", "other");
      await g.cli("cron", "add", "--name", "weekly", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin", "--message", "fail, please", "--agent", "other", "--retries", "0");
      weekly = JSON.parse(await g.cli("cron", "list", "--json")).jobs.find((j) => j.name === "weekly").id;
      await g.cli("cron", "run", "digest", "--wait");
      for (let i = 0; i < 2; i++) await g.cli("cron", "run", "weekly", "--wait").catch(() => {}); // the command fails with the run
      await g.cli("cron", "pause", "heartbeat", "--note", "holidays <b>");
    });
    after(() => g.stop());
    const to = async (fragment, options, token = TOKEN) => {
      const p = await open(options);
      await signIn(p, g.url, token);
      await go(p, fragment);
      return p;
    };

    test("a row says how a job is, when it runs and how its last runs ended, in shapes and in words", async () => {
      const p = await to("#/jobs?sort=name");
      await shown(p, ["backup", "digest", "heartbeat", "weekly"]);
      assert.match(await row(p, "weekly").textContent(), /✕.*weekly failing.*Europe\/Berlin.*in \d.*error.*ago.*The last 2: 2 error\. The newest: error\.2 failed(\d+ ms|\d\.\d s)/s);
      assert.match(await row(p, "digest").textContent(), /●.*digest ok.*Asia\/Tokyo.*in \d.*09:00.*1 ok/s);
      assert.match(await row(p, "heartbeat").textContent(), /‖.*every 6 h.*paused.*“holidays <b>”, by .*since/s);
      assert.deepEqual(await Promise.all(["failing", "paused", "running", "late", "invalid", "all"].map((c) => count(p, c))), ["1", "1", "0", "0", "0", "4"]);
      assert.deepEqual(await findings(p), []);
      for (const width of [1440, 834, 390, 320]) {
        await p.setViewportSize({ width, height: 844 });
        assert.deepEqual(await outside(p), [], `at ${width}`);
      }
      clean(p);
      await p.context().close();
    });

    test("order and filter are the gateway's and in the address", async () => {
      const p = await to("#/jobs");
      await row(p, "weekly").waitFor();
      await p.click(".conditions a:has-text('failing')");
      await shown(p, ["weekly"]);
      assert.equal(await p.evaluate(() => location.hash), "#/jobs?only=failing");
      await p.click(".conditions a:has-text('all')");
      await p.selectOption("#sort", "failing");
      await p.waitForFunction(() => document.querySelector("table.jobs tbody a").textContent === "weekly");
      await p.fill("#find", "agent:other");
      await p.press("#find", "Enter");
      await shown(p, ["weekly", "backup"]);
      assert.equal(await p.evaluate(() => location.hash), "#/jobs?sort=failing&find=agent%3Aother");
      await p.reload();
      await live(p);
      await shown(p, ["weekly", "backup"]);
      assert.equal(await p.inputValue("#find"), "agent:other");
      await p.goBack();
      await p.waitForFunction(() => document.querySelectorAll("table.jobs tbody tr").length === 4);
      await go(p, "#/jobs?find=nothing");
      await shows(p, "td.empty", "No job fits.");
      clean(p);
      await p.context().close();
    });

    for (const viewport of [{ width: 1440, height: 900 }, { width: 390, height: 844 }]) {
      test(`question 3, stop it now, and run now at ${viewport.width} px`, async (t) => {
        await g.cli("cron", "add", "--name", "long", "--every", "6h", "--message", "wait here", "--agent", "other", "--replace");
        const p = await to("#/jobs?sort=name", { viewport });
        await row(p, "long").locator(".run").click();
        await row(p, "long").locator(".mark.running, .shape.running").first().waitFor();
        await shows(p, "table.jobs tr", "running, ");
        const from = Date.now();
        await row(p, "long").locator(".stop").click();
        await p.waitForFunction(() => [...document.querySelectorAll("table.jobs tr")].some((r) => /long.*cancelled, \d+ s ago/s.test(r.textContent)));
        measured(t, "cancel", Date.now() - from);
        await row(p, "long").locator(".run").waitFor();
        clean(p);
        await p.context().close();
      });
    }

    test("a pause has a note and an end, and can be undone for ten seconds", async () => {
      const p = await to("#/jobs?sort=name");
      const pauseButton = row(p, "digest").locator(".pause");
      await pauseButton.click();
      await p.click("#sure");
      await shows(p, "#pause-fault", "Write why");
      await p.fill("#note", "moving house");
      await p.selectOption("#until", "day");
      assert.deepEqual(await findings(p), []);
      await p.click("#sure");
      await shows(p, "table.jobs tr", "“moving house”, by ");
      assert.match(await row(p, "digest").textContent(), /paused until /);
      const stored = JSON.parse(await g.cli("cron", "get", "digest", "--json")).paused;
      assert.equal(stored.note, "moving house");
      assert.ok(Math.abs(stored.untilMs - Date.now() - 86_400_000) < 60_000, `until ${stored.untilMs}`);
      await p.click("#undo");
      await p.waitForSelector("#undo", { state: "detached" });
      await eventually("the pause is taken back", async () => JSON.parse(await g.cli("cron", "get", "digest", "--json")).enabled);
      await row(p, "heartbeat").locator(".pause").click();
      await shows(p, ".undo", "Resumed heartbeat.");
      await p.click("#undo");
      await shows(p, "table.jobs tr", "“holidays <b>”");
      clean(p);
      await p.context().close();
    });

    test("one job has its runs with the reason of each, and its attempts", async () => {
      await g.cli("cron", "add", "--name", "again", "--every", "6h", "--message", "fail, please", "--agent", "other", "--retries", "1", "--replace");
      const id = JSON.parse(await g.cli("cron", "list", "--json")).jobs.find((j) => j.name === "again").id;
      const p = await to(`#/jobs/${weekly}`);
      await shows(p, "#job", "weekly");
      await shows(p, "table[aria-label='Runs'] tr", "the model refused the key");
      assert.match(await p.textContent(".title"), /failing.*2 failed in a row/s);
      assert.deepEqual(await findings(p), []);
      for (const width of [1440, 834, 390, 320]) {
        await p.setViewportSize({ width, height: 844 });
        assert.deepEqual(await outside(p), [], `at ${width}`);
      }
      await p.setViewportSize({ width: 1440, height: 900 });
      await p.click(".title .run");
      await shows(p, ".title", "3 failed in a row");
      await go(p, `#/jobs/${id}`);
      await shows(p, "#job", "again");
      await p.click(".title .run");
      await shows(p, "table[aria-label='Runs'] tr", "(by hand)");
      await g.cli("cron", "pause", "again", "--note", "holidays");
      await shows(p, "table[aria-label='Runs'] tr", "paused");
      const what = await p.$$eval("table[aria-label='Runs'] tbody tr", (rows) => rows.map((r) => r.querySelectorAll("td")[1].textContent));
      assert.match(what[0], /paused$/, "the newest is the pause");
      assert.ok(what.some((w) => w.endsWith("made")), what.join());
      clean(p);
      await p.context().close();
    });

    test("run now of an active job asks first, with what its policy does", async () => {
      const p = await to("#/jobs?sort=name");
      for (const [overlap, words, starts] of [["skip", "allows no second run", false], ["buffer_one", "waits until the active one has ended", true], ["concurrent", "starts beside the active one", true]]) {
        await g.cli("cron", "add", "--name", "busy", "--every", "6h", "--message", "wait here", "--agent", "other", "--overlap", overlap, "--replace");
        await row(p, "busy").locator(".run").click();
        await row(p, "busy").locator(".shape.running").first().waitFor();
        await row(p, "busy").locator(".run").focus();
        await p.keyboard.press("Enter");
        await shows(p, "dialog p", words);
        assert.deepEqual(await findings(p), []);
        if (starts) {
          await p.click("dialog #sure");
          await p.waitForSelector("dialog", { state: "detached" });
          await eventually("a second run was taken", async () => JSON.parse(await g.cli("cron", "get", "busy", "--json")).queuedRuns === 2);
        } else {
          assert.equal(await p.locator("dialog #sure").count(), 0);
          await p.keyboard.press("Escape");
          await p.waitForFunction(() => document.activeElement.classList.contains("run"));
        }
        await row(p, "busy").locator(".stop").click();
        await eventually("no run is active", async () => JSON.parse(await g.cli("cron", "get", "busy", "--json")).queuedRuns === 0);
        await row(p, "busy").locator(".stop").waitFor({ state: "detached" });
      }
      await g.cli("cron", "rm", "busy");
      clean(p);
      await p.context().close();
    });

    test("a job is deleted by its name, by keyboard alone, and comes back with its history", async () => {
      await g.cli("cron", "add", "--name", "old news", "--cron", "0 7 * * *", "--tz", "Asia/Tokyo", "--message", "it's old", "--overlap", "buffer_one", "--max-runs", "9", "--jitter", "90s");
      const before = JSON.parse(await g.cli("cron", "get", "old news", "--json"));
      for (const fragment of ["#/jobs?sort=name", `#/jobs/${before.id}`]) {
        await g.cli("cron", "run", "old news", "--wait");
        const p = await to(fragment), menu = p.getByLabel("More for old news");
        await menu.focus();
        await p.keyboard.press("Enter");
        await p.keyboard.press("Escape");
        assert.equal(await p.evaluate(() => document.activeElement.tagName), "SUMMARY");
        await p.keyboard.press("Enter");
        await p.keyboard.press("Tab");
        await p.keyboard.press("Tab");
        await p.keyboard.press("Enter");
        await p.waitForSelector("#typed");
        assert.deepEqual(await findings(p), []);
        await p.fill("#typed", "news");
        await p.keyboard.press("Enter");
        await shows(p, "#delete-fault", "not the name");
        await p.fill("#typed", "old news");
        await p.keyboard.press("Enter");
        await shows(p, ".undo", "Deleted old news.");
        await eventually("the job is gone", async () => !(await g.cli("cron", "list", "--all")).includes("old news"));
        await p.waitForFunction(() => document.activeElement.id === "undo");
        await p.keyboard.press("Enter");
        await p.waitForSelector("#undo", { state: "detached" });
        await p.waitForFunction(() => document.activeElement !== document.body);
        await go(p, `#/jobs/${before.id}`);
        await shows(p, "#job", "old news");
        await shows(p, "table[aria-label='Runs'] tr", "(by hand)");
        const after = JSON.parse(await g.cli("cron", "get", "old news", "--json"));
        for (const name of ["id", "key", "schedule", "dst", "payload", "delivery", "overlap", "missed", "retry", "maxRuns", "jitterMs", "timeoutSeconds", "enabled", "agentId", "sessionTarget"]) assert.deepEqual(after[name], before[name], name);
        clean(p);
        await p.context().close();
      }
    });

    test("a job as a command makes the same job", async () => {
      const p = await to("#/jobs?sort=name");
      await p.getByLabel("More for old news").click();
      await p.click("details[open] button:has-text('Copy as command')");
      await p.waitForSelector("#command");
      assert.deepEqual(await findings(p), []);
      const line = await p.textContent("#command");
      await g.cli("cron", "rm", "old news");
      const binary = process.env.LANEWAY ?? new URL("../bin/laneway", import.meta.url).pathname;
      const before = JSON.parse(await g.cli("cron", "runs", "old news", "--json")).entries.length;
      assert.ok(before > 0, "its history is kept");
      await promisify(execFile)("sh", ["-c", line.replace(/^laneway/, `'${binary}'`)], { env: g.env });
      const j = JSON.parse(await g.cli("cron", "get", "old news", "--json"));
      assert.deepEqual([j.schedule.expr, j.schedule.tz, j.payload.message, j.overlap, j.maxRuns, j.jitterMs], ["0 7 * * *", "Asia/Tokyo", "it's old", "buffer_one", 9, 90_000]);
      await g.cli("cron", "rm", "old news");
      clean(p);
      await p.context().close();
    });

    test("who may only read sees no control", async () => {
      const p = await to("#/jobs", {}, READER);
      await row(p, "digest").waitFor();
      assert.equal(await p.locator("table.jobs button").count(), 0);
      clean(p);
      await p.context().close();
    });
  });
}

const MANY = 10_000;
const WATCHED = 30_000; // ms

for (const engine of ENGINES) {
  describe(`${MANY} jobs that fire each minute, on ${engine}`, () => {
    let g;
    before(async () => {
      g = await Gateway.start(engine, { more: "limits: {cron_writes: 0, requests: 0}\ncron: {retention_runs: 20}\n" });
      const base = Date.now();
      const job = (i) => ({ name: `job ${String(i).padStart(5, "0")}`, schedule: { kind: "every", everyMs: 60_000, anchorMs: base + i * 6 }, sessionTarget: "isolated", payload: { kind: "agentTurn", message: "hello" } });
      writeFileSync(join(g.dir, "jobs.yaml"), JSON.stringify(Array.from({ length: MANY }, (_, i) => job(i))), { mode: 0o600 });
      await g.cli("cron", "import", join(g.dir, "jobs.yaml"));
    });
    after(() => g.stop());

    test("the page receives at most 30 KB a second, and changes to another page of the list at once", async (t) => {
      const p = await open();
      let bytes = 0, events = 0;
      p.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => {
        bytes += payload.length;
        const { event, payload: ev } = JSON.parse(payload);
        if (event === "cron") events += ev.count ?? 1;
      }));
      await signIn(p, g.url, TOKEN);
      await go(p, "#/jobs?sort=name");
      await p.waitForFunction((n) => document.querySelector(".conditions a:last-child .quiet")?.textContent === String(n), MANY);
      assert.equal(await p.locator("table.jobs tbody tr").count(), 100);
      await p.evaluate(() => {
        globalThis.slow = [];
        new PerformanceObserver((l) => { for (const e of l.getEntries()) globalThis.slow.push(Math.round(e.duration)); }).observe({ entryTypes: ["longtask"] });
      });
      bytes = 0;
      events = 0;
      const from = Date.now();
      await new Promise((end) => setTimeout(end, WATCHED)); // the test measures what the page receives meanwhile
      const seconds = (Date.now() - from) / 1000, rate = bytes / seconds / 1000;
      t.diagnostic(`${Math.round(events / seconds)} events/s; ${rate.toFixed(1)} KB/s received; long tasks ${JSON.stringify(await p.evaluate(() => globalThis.slow))} ms`);
      assert.ok(rate <= 30, `${rate} KB/s`);
      assert.ok(events / seconds > 50, `only ${events / seconds} events/s`);
      const took = await p.evaluate(async () => {
        const name = () => document.querySelector("table.jobs tbody a")?.textContent, first = name(), began = performance.now();
        document.querySelector("#next").click();
        while (name() === first) await new Promise((frame) => requestAnimationFrame(frame));
        return performance.now() - began;
      });
      measured(t, "next", took);
      assert.equal((await names(p))[0], "job 00100");
      assert.ok(took < 2000, `${took} ms`);
      await p.waitForFunction(() => document.querySelectorAll("table.jobs .strip .shape").length > 0);
      clean(p);
      await p.context().close();
    });
  });
}
