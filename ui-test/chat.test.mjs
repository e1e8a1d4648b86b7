// The chat of the real binary in Chromium, on each engine: long conversations, Markdown, tool calls, failures, the queue, stop, reset, search.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, go, live, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, READER, TOKEN, eventually } from "./gateway.mjs";

const PROGRAM = new URL("agent.mjs", import.meta.url).pathname;
const AGENTS = `echo: {runner: echo, chunk: 400, chunk_delay: 1ms}\n  main: {runner: command, command: [${process.execPath}, ${PROGRAM}], output: claude}`;
const MESSAGES = 130; // 260 with their answers, more than the page holds
const MARKDOWN = "# Title\n\nHello **bold** and `code`, [here](https://example.com/a?b=1), [example.org](https://example.com), [mail](mailto:a@example.com), <b>raw</b> 3 &lt; 4.\n\n1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n```sh\nls <x>\n```";
const HOSTILE = "<img src=x onerror=alert(1)> <script>alert(1)</script> [x](javascript:alert(1)) [y](data:text/html,z) ![p](javascript:alert(2)) [z](vbscript:a) <https://h@x\u202egpj.exe> \u202egpj.exe &#x202e; "
  + `${">".repeat(300)} ${"[".repeat(300)} ${"w".repeat(4000)}`;

before(() => openBrowser());
after(() => closeBrowser());

const shows = (p, selector, words) => p.waitForFunction(([s, w]) => [...document.querySelectorAll(s)].some((n) => n.textContent.includes(w)), [selector, words]);
const address = (key, at) => `#/chat/${encodeURIComponent(key)}${at ? `?at=${at}` : ""}`;
const say = async (p, text) => { await p.fill("textarea", text); await p.press("textarea", "Enter"); };
const answered = (p, n = 1) => p.waitForFunction((want) => document.querySelectorAll(".bubble.assistant:not(.growing)").length >= want && !document.querySelector(".bubble.growing"), n);

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g;
    before(async () => {
      g = await Gateway.start(engine, { agent: AGENTS, more: "default_agent: main\n" });
      for (let i = 1; i <= MESSAGES; i++) await g.cli("send", i === 40 ? "forty pelicans" : `line ${i}`, "--session", "agent:echo:long");
    });
    after(() => g.stop());
    const to = async (key, options) => {
      const p = await open(options);
      await signIn(p, g.url, TOKEN);
      await go(p, address(key));
      return p;
    };

    test("a long conversation opens at its end, shows older messages on demand, and has at most 200 in the page", async (t) => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      const from = Date.now();
      await go(p, address("agent:echo:long"));
      await shows(p, ".bubble.user", `line ${MESSAGES}`);
      t.diagnostic(`opened in ${Date.now() - from} ms`);
      assert.equal(await p.locator(".bubble").count(), 50);
      assert.match(await p.textContent("#older"), /^210 earlier messages: show 50$/);
      assert.ok(await p.evaluate(() => { const n = document.querySelector(".log"); return n.scrollHeight - n.scrollTop - n.clientHeight < 80; }), "it opens at its end");
      for (let n = 100; n <= 250; n += 50) {
        const first = await p.locator(".bubble").first().textContent();
        await p.click("#older");
        await p.waitForFunction((was) => document.querySelector(".bubble").textContent !== was, first);
        assert.equal(await p.locator(".bubble").count(), Math.min(200, n));
      }
      assert.match(await p.textContent("#older"), /^10 earlier/);
      assert.match(await p.textContent("#later"), /^50 later messages: show 50$/);
      await p.click("#later");
      await p.waitForSelector("#later", { state: "detached" });
      assert.equal(await p.locator(".bubble").count(), 200);
      const rows = await p.locator(".bubble.user .text").allTextContents();
      assert.equal(new Set(rows).size, rows.length, "no message twice");
      assert.equal(rows.at(-1), `line ${MESSAGES}`);
      await say(p, "one more");
      await p.waitForFunction(() => [...document.querySelectorAll(".bubble.assistant:not(.growing) .text")].at(-1)?.textContent.includes("one more"));
      assert.equal(await p.locator(".bubble").count(), 200);
      clean(p);
      await p.context().close();
    });

    test("a link leads to a message, and a reader who has scrolled up stays there", async () => {
      const p = await to("agent:echo:long");
      await p.waitForSelector(".bubble");
      await go(p, address("agent:echo:long", 41));
      await p.waitForSelector(".bubble.hit");
      const place = () => p.evaluate(() => { const r = document.querySelector(".bubble.hit").getBoundingClientRect(); return [Math.round(r.top), r.top > 0 && r.bottom < innerHeight]; });
      const [top, inside] = await place();
      assert.ok(inside, "the message is in view");
      await g.cli("send", "a new message", "--session", "agent:echo:long");
      await p.waitForFunction(() => /^\d+ later/.test(document.querySelector("#later").textContent));
      assert.deepEqual(await place(), [top, true]);
      await p.click("#newest");
      await shows(p, ".bubble.assistant", "a new message");
      await p.waitForFunction(() => { const n = document.querySelector(".log"), there = n.scrollTop === 300; n.scrollTop = 300; return there; });
      await g.cli("send", "the newest message", "--session", "agent:echo:long");
      await shows(p, ".bubble.assistant", "the newest message");
      assert.equal(await p.evaluate(() => document.querySelector(".log").scrollTop), 300);
      clean(p);
      await p.context().close();
    });

    test("question 14, what was said about X: the search shows the hit in its place", async (t) => {
      for (const viewport of [{ width: 1440, height: 900 }, { width: 390, height: 844 }]) {
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        const from = Date.now();
        await p.click('#nav a[href="#/chat"]');
        await p.fill('input[type="search"]', "pelicans");
        await p.locator(".item.hit", { hasText: "forty pelicans" }).last().click();
        await shows(p, ".bubble.hit .text", "forty pelicans");
        measured(t, "search", Date.now() - from);
        assert.equal(await p.locator(".compose", { hasText: "An earlier conversation" }).count(), 0, "it is the present conversation");
        assert.ok(await p.locator(".bubble").count() > 40, "with what is around it");
        await p.reload();
        await shows(p, ".bubble.hit .text", "forty pelicans");
        assert.deepEqual(await outside(p), []);
        clean(p);
        await p.context().close();
      }
    });

    test("Markdown becomes elements at the end of an answer, HTML stays text, and only addresses of the web and of mail are links", async () => {
      const p = await to("agent:main:markdown");
      await say(p, MARKDOWN);
      await answered(p);
      await p.waitForSelector(".bubble.assistant table");
      const has = await p.evaluate(() => Object.fromEntries(["strong", "code", "li", "th", "td", "blockquote", "pre", ".heading", "img", "b", "script"].map((s) => [s, document.querySelectorAll(`.bubble.assistant ${s}`).length])));
      assert.deepEqual(has, { strong: 1, code: 2, li: 2, th: 2, td: 2, blockquote: 1, pre: 1, ".heading": 1, img: 0, b: 0, script: 0 });
      const links = await p.evaluate(() => [...document.querySelectorAll(".bubble.assistant .text a")].map((a) => [a.getAttribute("href"), a.rel]));
      assert.deepEqual(links, ["https://example.com/a?b=1", "https://example.com/", "mailto:a@example.com"].map((href) => [href, "noopener noreferrer nofollow"]));
      assert.match(await p.textContent(".bubble.assistant .text"), /example\.org \(example\.com\).*<b>raw<\/b> 3 < 4\./);
      assert.deepEqual(await findings(p), []);
      clean(p);
      await p.context().close();
    });

    test("hostile strings in messages, names and results of tools, and failures create no element", async () => {
      const p = await to("agent:main:hostile");
      await say(p, `tool ${HOSTILE}`);
      await answered(p);
      await say(p, `fail ${HOSTILE}`);
      await shows(p, ".bubble", "the model refused the key");
      await p.evaluate(() => { for (const d of document.querySelectorAll("details")) d.open = true; });
      await p.waitForFunction(() => !document.querySelector(".bubble.growing"));
      const made = () => p.evaluate(() => [document.querySelectorAll(".log :is(img, script, iframe, object, form, svg, style)").length, [...document.querySelectorAll(".bubble .text a")].filter((a) => !/^(https?|mailto):/.test(a.href)).length]);
      assert.deepEqual(await made(), [0, 0]);
      assert.match(await p.textContent(".log"), /\\u202egpj\.exe/);
      assert.ok(await p.evaluate(() => !/[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)), "characters that reverse text are shown as escapes");
      assert.match(await p.locator(".call pre").last().textContent(), /^a\.txt .*cut at 16 KB$|^.{1,16400}$/s);
      for (const width of [1440, 834, 390, 320]) {
        await p.setViewportSize({ width, height: 844 });
        assert.deepEqual(await outside(p), [], `at ${width}`);
      }
      clean(p);
      await p.context().close();
    });

    test("a tool call is one line that expands to its arguments and its result", async () => {
      const p = await to("agent:main:tools");
      await say(p, "a tool please");
      await answered(p);
      const call = p.locator(".bubble.assistant details.call");
      assert.equal(await call.count(), 1);
      assert.equal(await call.locator("pre").first().isVisible(), false);
      await call.locator("summary").click();
      assert.match(await call.locator("pre").first().textContent(), /"command": "ls /);
      assert.match(await call.locator("pre").nth(1).textContent(), /a\.txt/);
      assert.deepEqual(await findings(p), []);
      clean(p);
      await p.context().close();
    });

    for (const viewport of [{ width: 1440, height: 900 }, { width: 390, height: 844 }]) {
      test(`question 5 at ${viewport.width} px: what the agent answered, and at what cost`, async (t) => {
        await g.cli("send", "a tool: trains to Lyon", "--session", "agent:main:costly");
        await g.cli("cron", "add", "--name", "costly", "--every", "24h", "--message", "trains to Turin", "--replace");
        await g.cli("cron", "run", "costly", "--wait");
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        let from = Date.now();
        await p.click('#nav a[href="#/chat"]');
        await p.locator(".item", { hasText: "costly" }).click();
        const answer = p.locator(".bubble.assistant").last();
        await answer.locator(".cost summary").click();
        await shows(p, ".cost[open]", "1,200 tokens in, 300 out");
        measured(t, "answer", Date.now() - from);
        assert.match(await answer.locator(".text").textContent(), /trains to Lyon/);
        assert.match(await p.textContent(".cost[open]"), /waited \d+(\.\d)? m?s · ran \d+(\.\d)? m?s$/);
        assert.deepEqual(await outside(p), []);
        assert.deepEqual(await findings(p), []);
        await go(p, "#/overview");
        await p.waitForSelector(".figures");
        from = Date.now();
        await p.click('#nav a[href="#/jobs"]');
        await p.click("a:text-is('costly')");
        await shows(p, "table[aria-label=Runs] tr", "1,200 tokens in, 300 out");
        measured(t, "job", Date.now() - from);
        assert.match(await p.locator("table[aria-label=Runs] tr", { hasText: "tokens" }).first().textContent(), /trains to Turin/);
        assert.deepEqual(await outside(p), []);
        await p.click("table[aria-label=Runs] a:has-text('Conversation')");
        await shows(p, ".bubble.assistant", "trains to Turin");
        clean(p);
        await p.context().close();
      });
    }

    test("the reason of a failure is there after a reload", async () => {
      const p = await to("agent:main:failures");
      await say(p, "please fail");
      await shows(p, ".bubble", "the model refused the key");
      await p.reload();
      await shows(p, ".bubble.system", "the model refused the key");
      assert.match(await p.textContent(".bubble.system"), /Failed before its answer was complete: "please fail"/);
      clean(p);
      await p.context().close();
    });

    test("what waits is in the queue and can be cancelled, and stop acts at once", async (t) => {
      const p = await to("agent:main:queue");
      await say(p, "wait here");
      await shows(p, ".bubble.growing .text", "I am **working**");
      await say(p, "the second one");
      await shows(p, ".queue li", "the second one");
      await say(p, "the third one");
      await shows(p, ".queue h3", "Waiting: 2");
      assert.deepEqual(await findings(p), []);
      await p.reload();
      await shows(p, ".bubble.growing .text", "I am **working**");
      await p.locator(".queue li", { hasText: "the second one" }).locator("button").click();
      await shows(p, ".queue h3", "Waiting: 1");
      assert.deepEqual(await p.locator(".queue li .ellipsis").allTextContents(), ["the third one"]);
      const from = Date.now();
      await p.click("#stop");
      await shows(p, "#stop", "Stopping since");
      measured(t, "stop", Date.now() - from);
      await shows(p, ".bubble.assistant:not(.growing) .text", "the third one");
      await shows(p, ".bubble.system", "Stopped before its answer was complete");
      assert.equal(await p.locator(".queue").count(), 0);
      clean(p);
      await p.context().close();
    });

    test("Stop all and Reset say what they will do, and do it", async () => {
      const p = await to("agent:main:all");
      await say(p, "wait here");
      await shows(p, ".bubble.growing .text", "working");
      await say(p, "dropped later");
      await shows(p, ".queue", "dropped later");
      await p.click("#stopall");
      await shows(p, "dialog li", "1 waiting message is dropped.");
      assert.deepEqual(await findings(p), []);
      await p.keyboard.press("Escape");
      await p.waitForSelector("dialog", { state: "detached" });
      await p.click("#stopall");
      await p.click("#sure");
      await p.waitForFunction(() => !document.querySelector(".bubble.growing, .queue"));
      await p.waitForFunction(() => !document.querySelector("#stop, #stopall"));
      await say(p, "hippopotamus");
      await answered(p);
      await p.click("#reset");
      await shows(p, "dialog li", "without the conversation so far");
      await p.click("#sure");
      await shows(p, ".log .empty", "No messages yet");
      await p.fill('input[type="search"]', "hippopotamus");
      await p.locator(".item.hit").first().click();
      await shows(p, ".bubble.hit .text", "hippopotamus");
      await shows(p, ".compose", "An earlier conversation of this session");
      clean(p);
      await p.context().close();
    });

    test("the rest of a long answer is read on demand", async () => {
      await g.cli("send", "endless", "--session", "agent:main:endless");
      const p = await to("agent:main:endless");
      const rest = p.locator("button", { hasText: "Show the rest" });
      for (let pieces = 0; pieces < 3; pieces++) {
        const was = (await p.locator(".bubble.assistant").textContent()).length;
        await rest.click();
        await p.waitForFunction((n) => document.querySelector(".bubble.assistant").textContent.length > n + 1000, was);
      }
      await rest.waitFor({ state: "detached" });
      const words = (await p.locator(".bubble.assistant .text").allTextContents()).join("");
      assert.equal(words.match(/word /g).length, 40_000);
      assert.match(words, /^begin .*end$/s);
      clean(p);
      await p.context().close();
    });

    test("after a visit to the chat the gateway sends no more events of sessions", async () => {
      const p = await open();
      let got = 0;
      const counts = []; // session events before each answer to sessions.subscribe and sessions.unsubscribe
      p.on("websocket", (s) => s.on("framereceived", ({ payload }) => {
        const frame = JSON.parse(payload);
        if (["chat", "agent", "sessions.changed"].includes(frame.event)) got++;
        if (frame.payload?.subscribed !== undefined) { counts.push(got); got = 0; }
      }));
      await signIn(p, g.url, TOKEN);
      await go(p, address("agent:echo:visit"));
      await say(p, "seen");
      await answered(p);
      await go(p, "#/people");
      await eventually("the page has ended its subscription", () => counts.length === 2);
      await g.cli("send", "unseen", "--session", "agent:echo:visit");
      await go(p, address("agent:echo:visit"));
      await shows(p, ".bubble.assistant", "unseen");
      await say(p, "again");
      await answered(p, 3);
      assert.equal(counts.length, 3);
      assert.ok(counts[1] > 0 && got > 0, `the chat gets events: ${counts}, then ${got}`);
      assert.equal(counts[2], 0, "no event arrived while the page showed something else");
      clean(p);
      await p.context().close();
    });

    test("a reader sees the conversation and no control", async () => {
      const p = await open();
      await signIn(p, g.url, READER);
      await go(p, address("agent:main:all"));
      await shows(p, ".compose", "This token may only read.");
      assert.equal(await p.locator("textarea, .head button, .queue button").count(), 0);
      clean(p);
      await p.context().close();
    });
  });
}
