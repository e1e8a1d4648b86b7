// Questions of an agent on the page of the real binary in Chromium, on each engine: an agent over ACP asks, and the person answers with a button.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { clean, closeBrowser, findings, go, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, WRITER, eventually } from "./gateway.mjs";

const PROGRAM = new URL("asking.mjs", import.meta.url).pathname;
const AGENTS = `main: {runner: acp, command: [${process.execPath}, ${PROGRAM}], question_timeout: 120s}\n  hurried: {runner: acp, command: [${process.execPath}, ${PROGRAM}], question_timeout: 6s}`;
const LABELS = ["Allow: Yes", "Allow always (exactly this): always for this command", "Deny: No, and tell the model why"];

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => [...document.querySelectorAll(s)].some((n) => n.textContent.includes(w)), [selector, words]);
const gone = (p, selector) => p.waitForSelector(selector, { state: "detached" });
const say = async (p, text) => { await p.fill("textarea", text); await p.press("textarea", "Enter"); };
const address = (key) => `#/chat/${encodeURIComponent(key)}`;

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g;
    before(async () => { g = await Gateway.start(engine, { agent: AGENTS, more: "default_agent: main\n" }); });
    after(() => g.stop());
    const to = async (fragment, token = TOKEN, options = {}) => {
      const p = await open(options);
      await signIn(p, g.url, token);
      await go(p, fragment);
      return p;
    };
    const questions = async () => JSON.parse(await g.cli("questions", "list", "--json")).questions;

    test("a question is in the conversation with the agent's labels, all arguments and its time, and a press answers it", async (t) => {
      const p = await to(address("agent:main:asked"));
      const from = Date.now();
      await say(p, "rm -r build");
      await shows(p, ".question", "The agent main asks before it does this: run the command “rm -r build” in the directory");
      t.diagnostic(`shown ${Date.now() - from} ms after the message`);
      assert.deepEqual(await p.locator(".question .answers button").allTextContents(), LABELS);
      assert.match(await p.textContent(".question"), /Asked \d+ s ago, \d+ (s|min) left/);
      assert.match(await p.textContent(".question"), /with “timeout” = “20”/, "what is allowed exactly is shown whole");
      assert.equal(await p.locator(".question summary").count(), 0);
      assert.equal(await p.locator(".bubble", { hasText: "Write /" }).count(), 0, "the line of the transcript is not shown besides");
      for (const width of [1440, 834, 390, 320]) {
        await p.setViewportSize({ width, height: 900 });
        assert.deepEqual(await outside(p), [], `at ${width}`);
      }
      assert.deepEqual(await findings(p), []);
      const pressed = Date.now();
      await p.click(`.question button:has-text("${LABELS[0]}")`);
      await shows(p, ".bubble.assistant", "chosen: once");
      t.diagnostic(`answered ${Date.now() - pressed} ms after the press`);
      await gone(p, ".question");
      await shows(p, ".log [role=status]", "The answer is: Allow: Yes.");
      assert.deepEqual(await questions(), []);
      clean(p);
      await p.context().close();
    });

    test("how a file is changed are details of the question, because the answer covers any change", async () => {
      const p = await to(address("agent:main:file"));
      await say(p, "change notes.txt");
      await shows(p, ".question", "change the file “notes.txt” in the directory");
      assert.equal((await p.locator(".question .answers button").allTextContents())[1], "Allow always (any change of this file): always for this command");
      assert.equal(await p.locator(".question pre").isVisible(), false);
      await p.click(".question summary");
      assert.match(await p.textContent(".question pre"), /with “new_string” = “two”, “old_string” = “one”/);
      await p.click(`.question button:has-text("${LABELS[0]}")`);
      await shows(p, ".bubble.assistant", "chosen: once");
      clean(p);
      await p.context().close();
    });

    test("the overview lists the question with its buttons, and another page follows", async () => {
      const overview = await to("#/overview"), chat = await to(address("agent:main:seen")), other = await to(address("agent:main:seen"), WRITER);
      await say(chat, "make deploy");
      await shows(overview, ".needs li", "The agent main asks before it does this: run the command “make deploy”");
      await shows(chat, ".question", "make deploy");
      await shows(chat, ".item", "asks");
      assert.equal(await other.locator(".question").count(), 0, "another credential is not asked");
      assert.deepEqual(await overview.locator(".needs .answers button").allTextContents(), LABELS);
      for (const width of [1440, 390]) {
        await overview.setViewportSize({ width, height: 900 });
        assert.deepEqual(await outside(overview), [], `at ${width}`);
      }
      assert.deepEqual(await findings(overview), []);
      const [around, buttons] = await Promise.all([".needs", ".needs .answers"].map((of) => overview.locator(of).boundingBox()));
      assert.ok(buttons.y + buttons.height <= around.y + around.height && buttons.x - around.x < 60, "the answers are below their question");
      await overview.click(`.needs button:has-text("${LABELS[2]}")`);
      await shows(chat, ".bubble.assistant", "chosen: no");
      await gone(chat, ".question");
      await gone(overview, ".needs .answers");
      for (const p of [overview, chat, other]) { clean(p); await p.context().close(); }
    });

    test("an administrator sees what another person is asked, and a reader is asked nothing", async () => {
      const asked = await to(address("agent:main:theirs"), WRITER);
      await say(asked, "git push");
      await shows(asked, ".question", "git push");
      const admin = await to(address("agent:main:theirs")), reader = await to(address("agent:main:theirs"), READER);
      await shows(admin, ".question", "write is asked.");
      assert.equal(await admin.locator(".question .answers").count(), 0);
      const [q] = await questions();
      await assert.rejects(g.cli("questions", "answer", q.id, "1"), /there is no open question like this/);
      await shows(reader, ".bubble.user", "git push");
      assert.equal(await reader.locator(".question").count(), 0);
      await asked.click(`.question button:has-text("${LABELS[1]}")`);
      await shows(asked, ".bubble.assistant", "chosen: once");
      await gone(admin, ".question");
      for (const p of [asked, admin, reader]) { clean(p); await p.context().close(); }
    });

    test("only one of two presses counts, the other one is explained, and an expired question is removed", async () => {
      const one = await to(address("agent:main:raced")), two = await to(address("agent:main:raced"));
      await say(one, "first come");
      for (const p of [one, two]) await shows(p, ".question", "first come");
      const press = (n) => { const button = document.querySelectorAll(".question .answers button")[n]; button?.click(); return Boolean(button); };
      const pressed = await Promise.all([one.evaluate(press, 0), two.evaluate(press, 2)]); // false when the other press had already removed the question
      await shows(one, ".bubble.assistant", "chosen: ");
      const told = async (p) => [await p.textContent("main > .fault"), await p.textContent(".log .note[role=status]")];
      const presses = pressed.filter(Boolean).length;
      const results = await eventually("the pages have their answers", async () => { const r = [await told(one), await told(two)]; return r.filter((texts) => texts.some(Boolean)).length === presses && r; });
      assert.equal(results.filter(([, text]) => text.startsWith("The answer is: ")).length, 1, `one press counts: ${results}`);
      assert.equal(results.filter(([fault]) => fault.includes("no open question")).length, presses - 1, `the other is refused: ${results}`);
      await go(one, address("agent:hurried:late"));
      await say(one, "too late");
      await shows(one, ".question", "too late");
      await gone(one, ".question");
      await shows(one, ".bubble.assistant", "chosen: no");
      for (const p of [one, two]) { clean(p); await p.context().close(); }
    });
  });
}
