// "Is it healthy?" and "What runs, what waits, and for what?" on the page of the real binary in Chromium, wide and narrow, in the words of the command line.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, REPLICAS, TOKEN, eventually } from "./gateway.mjs";

const WIDE = { width: 1440, height: 900 }, NARROW = { width: 390, height: 844 };
const AGENTS = "main: {runner: echo, chunk: 1, chunk_delay: 500ms}\n  broken: {runner: command, command: [\"false\"]}";

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => document.querySelector(s)?.textContent.includes(w), [selector, words]);
const rowsOf = (p) => p.evaluate(() => [...document.querySelectorAll("table[aria-label=Now] tbody tr")].map((tr) => [...tr.querySelectorAll("td")].map((td) => td.textContent)));

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g;
    before(async () => {
      g = await Gateway.start(engine, { agent: AGENTS, more: "lanes: {main: 1}\n" });
      await g.cli("cron", "add", "--name", "weekly report", "--every", "24h", "--agent", "broken", "--message", "report");
      for (let n = 1; n <= 2; n++) await g.cli("cron", "run", "weekly report", "--wait").catch(() => {});
      await eventually("the job has failed twice", async () => (await g.cli("status")).includes("has failed"));
    });
    after(() => g.stop());

    for (const viewport of [WIDE, NARROW]) {
      test(`question 1 at ${viewport.width} px: the first line says what needs a person, and the page says what to do`, async (t) => {
        const p = await open({ viewport });
        const from = Date.now();
        await signIn(p, g.url, TOKEN);
        await shows(p, "#link", "healthy");
        await shows(p, "#link", "1 needs you");
        measured(t, "healthy", Date.now() - from);
        assert.ok(!(await p.textContent("#link")).includes("not healthy"), "a failing job is not a fault of the gateway");
        const listed = await p.$$eval(".needs li .mark", (marks) => marks.map((m) => m.textContent.replace(/^\S+ /, "")));
        const status = await g.cli("status");
        for (const text of listed) assert.ok(status.includes(text), `laneway status prints the same sentence: ${text}\n${status}`);
        assert.match(listed[0], /^Job weekly report has failed \d+ times in a row: /);
        await p.click(".needs li:has-text('weekly report') a");
        await shows(p, "#job", "weekly report");
        clean(p);
        await p.context().close();
      });

      test(`question 4 at ${viewport.width} px: each waiting run has its cause and its place, and is cancelled there`, async (t) => {
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        await p.waitForSelector("table[aria-label=Now]");
        const send = (s, n) => g.cli("send", "--session", s, `message ${n} ${".".repeat(60)}`).catch(() => {});
        const sends = [send("one", 0)];
        await p.waitForSelector("table[aria-label=Now] tbody tr .acts button"); // it runs: the places of the others do not depend on who came first
        sends.push(...["one", "two", "three"].map((s, n) => send(s, n + 1)));
        const from = Date.now();
        await p.waitForFunction(() => document.querySelectorAll("table[aria-label=Now] tbody tr .acts button").length === 4);
        measured(t, "runs", Date.now() - from);
        const rows = await rowsOf(p), other = engine === "postgres" && REPLICAS > 1; // the runs are on the replica of the command line, and only that replica has their places
        const place = (n) => (other ? "" : `, place ${n}`);
        assert.deepEqual(rows.map((r) => r[5]).sort(), [`a slot of its lane${place(1)}`, `a slot of its lane${place(2)}`, `its session${place(1)}`, "–"].sort());
        assert.deepEqual(rows.map((r) => / on gw-2$/.test(r[2])), rows.map(() => other), "the replica is named where several are");
        assert.equal(await p.textContent("#lanes"), other ? "Lanes of gw-1" : "Lanes");
        assert.match(await p.textContent("section:has(#runs)"), /1 running, 3 waiting/);
        assert.deepEqual(await outside(p), []);
        assert.deepEqual(await findings(p), []);
        await p.click("table[aria-label=Lanes] a:has-text('main')");
        await shows(p, "section:has(#runs)", "lane main");
        for (let left = 4; left > 0; left--) {
          await p.locator("table[aria-label=Now] .acts button").last().focus();
          await p.keyboard.press("Enter");
          await p.waitForFunction((n) => document.querySelectorAll("table[aria-label=Now] tbody tr .acts button").length < n, left);
          await p.waitForFunction(() => document.activeElement.closest("section")?.querySelector("#runs")); // the focus stays in the list, or at its heading
        }
        await Promise.all(sends);
        await shows(p, "table[aria-label=Now]", "Nothing runs or waits in lane main.");
        clean(p);
        await p.context().close();
      });
    }

    test("a token that may only read sees the runs and cannot stop them", async () => {
      const p = await open();
      await signIn(p, g.url, READER);
      const sent = g.cli("send", "--session", "read", `slow ${".".repeat(40)}`).catch(() => {});
      await shows(p, "table[aria-label=Now]", "slow");
      assert.equal(await p.locator("table[aria-label=Now] .acts button").count(), 0);
      await g.cli("sessions", "stop", "read");
      await sent;
      clean(p);
      await p.context().close();
    });
  });
}
