// "Make or change a job without fear" on the page of the real binary in Chromium: the preview matches the fires, a refusal is shown at its field, a concurrent edit is shown, and the command has the same effect.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, go, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, TOKEN } from "./gateway.mjs";

const WIDE = { width: 1440, height: 900 }, NARROW = { width: 390, height: 844 };

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => document.querySelector(s)?.textContent.includes(w), [selector, words]);

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g;
    const jobs = async () => JSON.parse(await g.cli("cron", "list", "--all", "--json")).jobs;
    const named = async (name) => (await jobs()).find((j) => j.name === name);
    const to = async (fragment, options = {}) => {
      const p = await open(options);
      await signIn(p, g.url, TOKEN);
      await go(p, fragment);
      return p;
    };
    before(async () => { g = await Gateway.start(engine); });
    after(() => g.stop());

    for (const viewport of [WIDE, NARROW]) {
      test(`question 7 at ${viewport.width} px: a new job with a preview and its clock changes`, async (t) => {
        const p = await to("#/jobs", { viewport });
        const from = Date.now(), name = `night report ${viewport.width}`;
        await p.click("#new-job");
        await p.getByLabel("Name", { exact: true }).fill(name);
        await p.getByLabel("Time", { exact: true }).fill("02:30");
        await p.getByLabel("Time zone").fill("Europe/Berlin");
        await p.getByLabel("Message").fill("it's 5 o'clock\nsomewhere");
        await shows(p, "#preview", "Europe/Berlin");
        await shows(p, "#preview", "comes twice");
        const preview = await p.$$eval("#preview > .line > .fires li", (l) => l.map((li) => li.textContent));
        assert.equal(preview.length, 5);
        await p.check("#preview input[value=skip]");
        await shows(p, "#preview", "no run (skip)");
        const rules = await p.$$eval("#preview fieldset label", (l) => l.map((n) => n.getBoundingClientRect().height));
        assert.ok(rules.length === 5 && Math.max(...rules) < 48, `the rules are words on one line, not letters below each other: ${rules}`);
        assert.deepEqual(await outside(p), []);
        assert.deepEqual(await findings(p), []);
        await p.click("#save");
        await shows(p, "#job", name);
        measured(t, "form", Date.now() - from);
        const j = await named(name);
        assert.deepEqual([j.schedule.expr, j.schedule.tz, j.dst.gap, j.payload.message, j.enabled], ["30 2 * * *", "Europe/Berlin", "skip", "it's 5 o'clock\nsomewhere", true]);
        const next = JSON.parse(await g.cli("cron", "get", j.id, "--json")).nextRunAtMs;
        const said = new Intl.DateTimeFormat("en-US", { hour: "2-digit", minute: "2-digit", weekday: "short", timeZone: "Europe/Berlin" }).format(next);
        assert.ok(preview[0].includes(said.split(" ")[0]), `${preview[0]} and ${said}`);
        clean(p);
        await p.context().close();
      });
    }

    test("the command beside the form makes the same job", async () => {
      const p = await to("#/jobs?new");
      await p.getByLabel("Name", { exact: true }).fill("from the form");
      await p.getByLabel("It runs").selectOption("weekly");
      await p.getByLabel(/^Day /).selectOption("5");
      await p.getByLabel("Time", { exact: true }).fill("17:45");
      await p.getByLabel("Time zone").fill("America/New_York");
      await p.getByLabel("Message").fill("it's $HOME \"week\"");
      await p.getByLabel(/^Answer to/).fill("web:agent:main:main");
      await p.click("#job-more summary");
      await p.getByLabel(/still active/).selectOption("buffer_one");
      await p.getByLabel(/^Slots that passed/).selectOption("fire_all");
      await p.getByLabel(/^Attempts after/).fill("2");
      await p.getByLabel(/^Seconds of/).fill("90");
      await p.getByLabel(/^Not before/).fill("2031-03-01T00:00");
      await p.getByLabel(/^Ends after/).fill("3");
      await p.getByLabel(/before an alert/).fill("4");
      await p.waitForFunction(() => document.querySelectorAll("#preview > .line > .fires li").length === 3); // the preview ends where the job ends
      assert.match(await p.textContent("#preview"), /2031/);
      await p.getByLabel(/^Not after/).fill("2031-03-10T00:00");
      await p.waitForFunction(() => document.querySelectorAll("#preview > .line > .fires li").length === 1);
      const line = await p.textContent("#command");
      await p.click("#save");
      await shows(p, "#job", "from the form");
      const form = await named("from the form");
      const binary = process.env.LANEWAY ?? new URL("../bin/laneway", import.meta.url).pathname;
      await promisify(execFile)("sh", ["-c", line.replace(/^laneway/, `'${binary}'`).replace("'from the form'", "'from the command'")], { env: g.env });
      const command = await named("from the command");
      for (const member of ["schedule", "dst", "payload", "delivery", "overlap", "missed", "retry", "timeoutSeconds", "sessionTarget", "agentId", "startsAtMs", "endsAtMs", "maxRuns", "failureAlert"]) assert.deepEqual(command[member], form[member], `${member} of ${line}`);
      clean(p);
      await p.context().close();
    });

    test("a refusal is shown at its field and nothing is lost; a job is made paused", async () => {
      const p = await to("#/jobs?new");
      await p.getByLabel("Name", { exact: true }).fill("odd");
      await p.getByLabel("It runs").selectOption("free");
      await p.getByLabel(/^Cron expression/).fill("61 9 * * *");
      await p.getByLabel("Message").fill("hello");
      await p.waitForSelector("#preview .fault:not(:empty)");
      await p.click("#save");
      await p.waitForSelector("#job-fault:not(:empty)");
      assert.equal(await p.getAttribute("#job-when", "aria-invalid"), "true");
      assert.equal(await p.getByLabel("Message").inputValue(), "hello");
      await p.getByLabel(/^Cron expression/).fill("59 9 * * *");
      await p.click("#save-paused");
      await shows(p, "#job", "odd");
      assert.equal((await named("odd")).enabled, false);
      clean(p);
      await p.context().close();
    });

    test("an edit shows the fires before and after, and both versions when another person was faster", async () => {
      await g.cli("cron", "add", "--name", "digest", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--message", "hello");
      const { id } = await named("digest");
      const p = await to(`#/jobs/${id}`);
      await p.click("#edit");
      assert.equal(await p.getByLabel("It runs").inputValue(), "weekdays");
      await shows(p, "#preview", "Before");
      await p.getByLabel("Time", { exact: true }).fill("10:15");
      assert.equal(await p.textContent("#command"), `laneway cron edit ${id} --cron '15 10 * * 1-5' --tz Europe/Berlin`);
      await p.click("#job-more summary");
      await p.getByLabel(/^Ends after/).fill("5");
      assert.match(await p.textContent("#command"), / --max-runs 5$/);
      await p.getByLabel(/^Ends after/).fill("");
      await g.cli("cron", "edit", id, "--cron", "0 8 * * 1-5", "--tz", "Europe/Berlin", "--yes");
      await p.click("#save");
      await p.waitForSelector("#conflict");
      const both = await p.textContent("#conflict table tbody");
      assert.match(both, /15 10 \* \* 1-5.*0 8 \* \* 1-5/s);
      assert.equal((await named("digest")).schedule.expr, "0 8 * * 1-5", "nothing was overwritten");
      await p.click("#keep");
      await p.click("#save");
      await shows(p, "#job", "digest");
      assert.equal((await named("digest")).schedule.expr, "15 10 * * 1-5");
      const end = Date.UTC(2031, 2, 9, 23); // midnight in the zone of the job
      await g.cli("cron", "edit", id, "--until", "2031-03-10", "--alert-after", "0", "--yes");
      assert.deepEqual([(await named("digest")).endsAtMs, (await named("digest")).failureAlert], [end, false]);
      await g.cli("cron", "edit", id, "--until", "none", "--yes");
      assert.equal((await named("digest")).endsAtMs, undefined);
      clean(p);
      await p.context().close();
    });
  });
}
