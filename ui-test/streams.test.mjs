// Long and busy conversations on the page of the real binary in Chromium: 5,000 messages, and 20 answers that are streamed at once. A model endpoint of the test
// streams 50 deltas a second for each.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { caller, clean, closeBrowser, go, open, openBrowser, signIn } from "./browser.mjs";
import { ENGINES, Gateway, TOKEN, eventually } from "./gateway.mjs";

const STREAMS = 20, EVERY = 20; // ms between two deltas of a stream: 50 a second
const DELTAS = Number(process.env.DELTAS ?? 500);
const MESSAGES = 5000;
const LONGEST_FRAME = Number(process.env.LONGEST_FRAME ?? 1000); // ms; 100 on an idle machine, but test machines are shared
const OPEN = Number(process.env.LONGEST_OPEN ?? 5000); // ms; 500 likewise

// model answers a message "N" with DELTAS words that name it.
function model() {
  return createServer(async (request, response) => {
    if (request.method !== "POST") { response.writeHead(404).end(); return; } // the gateway requests the list of models
    let body = "";
    for await (const part of request) body += part;
    const name = JSON.stringify(JSON.parse(body).messages.at(-1).content).match(/stream \d+/g)?.at(-1) ?? "no stream"; // consecutive messages of one person are merged
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const chunk = (delta, end = null) => response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason: end }] })}\n\n`);
    let n = 0;
    const timer = setInterval(() => {
      if (n < DELTAS) { chunk({ role: "assistant", content: `${name} word ${n++}, ` }); return; }
      clearInterval(timer);
      chunk({}, "stop");
      response.end("data: [DONE]\n\n");
    }, EVERY);
    response.on("close", () => clearInterval(timer));
  });
}

const whole = (name) => Array.from({ length: DELTAS }, (_, n) => `${name} word ${n}, `).join("").trim();
const address = (key) => `#/chat/${encodeURIComponent(key)}`;

before(() => openBrowser());
after(() => closeBrowser());

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g, endpoint, c;
    let ran = 0; // number of runs sent
    before(async () => {
      endpoint = model();
      await new Promise((done) => endpoint.listen(0, "127.0.0.1", done));
      g = await Gateway.start(engine, {
        agent: `echo: {runner: echo}\n  main: {runner: openai, base_url: "http://127.0.0.1:${endpoint.address().port}/v1", model: m, api_key: k}`,
        more: `default_agent: main\nqueue: {cap: 10000, max_concurrent: ${STREAMS}}\nlimits: {chat: 0, requests: 0}\n`,
      });
      c = await caller(g.url, TOKEN);
    });
    after(async () => { await c.close(); await g.stop(); endpoint.close(); });
    // send sends messages to sessions concurrently: [sessionKey, message].
    const send = (all) => c.call("chat.send", all.map(([sessionKey, message]) => ({ sessionKey, message, idempotencyKey: `r${ran++}` })));
    const ended = () => eventually("all answers have ended", async () => (await c.ended()) === ran, 240_000);

    test("20 answers are streamed at once without a long frame, a reload continues in the middle, and each answer matches the transcript", async (t) => {
      const key = "agent:main:streams";
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await go(p, address(key));
      await p.waitForSelector(".log .empty");
      await send(Array.from({ length: STREAMS }, (_, n) => [key, `stream ${n}`]));
      await p.waitForFunction((n) => [...document.querySelectorAll(".bubble.growing .text")].filter((b) => b.textContent).length === n, STREAMS);
      const measure = () => p.evaluate(() => new Promise((done) => {
        const gaps = [];
        let last = performance.now();
        const next = (at) => { gaps.push(at - last); last = at; if (document.querySelector(".bubble.growing") && gaps.reduce((a, b) => a + b, 0) < 4000) requestAnimationFrame(next); else done(gaps); };
        requestAnimationFrame((at) => { last = at; requestAnimationFrame(next); });
      }));
      const report = (what, gaps) => {
        const sorted = gaps.toSorted((a, b) => a - b), longest = Math.round(sorted.at(-1));
        t.diagnostic(`${what}: ${gaps.length} frames, median ${Math.round(sorted[sorted.length >> 1])} ms, p99 ${Math.round(sorted[Math.floor(sorted.length * 0.99)])} ms, longest ${longest} ms, ${gaps.filter((g2) => g2 > 100).length} over 100 ms`);
        assert.ok(longest < LONGEST_FRAME, `${what}: a frame of ${longest} ms`);
      };
      report("while 20 answers grow", await measure());
      const lengths = () => p.$$eval(".bubble.assistant .text", (all) => all.map((b) => b.textContent.length));
      const before = Math.max(...await lengths());
      await p.reload();
      await p.waitForFunction((n) => document.querySelectorAll(".bubble.assistant .text").length === n, STREAMS);
      await p.waitForFunction((n) => Math.max(...[...document.querySelectorAll(".bubble.assistant .text")].map((b) => b.textContent.length)) > n, before);
      report("after the reload", await measure());
      await ended();
      await p.waitForFunction((n) => !document.querySelector(".bubble.growing") && document.querySelectorAll(".bubble.assistant").length === n, STREAMS);
      const shown = (await p.locator(".bubble.assistant .text").allTextContents()).map((text) => text.trim()).sort();
      const [{ messages }] = await c.call("chat.history", [{ sessionKey: key, maxChars: 500_000 }]);
      const stored = messages.filter((m) => m.role === "assistant").map((m) => m.content[0].text.trim()).sort();
      const brief = (texts) => texts.map((text) => `${text.slice(0, 16)}… ${text.length}`);
      assert.deepEqual(brief(shown), brief(stored));
      assert.ok(shown.every((text, i) => text === stored[i]), "the messages match the transcript");
      assert.deepEqual(brief(stored), brief(Array.from({ length: STREAMS }, (_, n) => whole(`stream ${n}`)).sort()));
      clean(p);
      await p.context().close();
    });

    test("20 streams of other conversations cost the page that shows none of them no long frame, and at most 30 KB/s", async (t) => {
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await go(p, address("agent:echo:quiet"));
      await p.waitForSelector(".log .empty");
      let bytes = 0;
      const cdp = await p.context().newCDPSession(p);
      await cdp.send("Network.enable");
      cdp.on("Network.webSocketFrameReceived", (f) => { bytes += f.response.payloadData.length; });
      const from = Date.now();
      await send(Array.from({ length: STREAMS }, (_, n) => [`agent:main:other-${n}`, `stream ${n}`]));
      const gaps = await p.evaluate(() => new Promise((done) => {
        const all = [];
        let last = performance.now();
        const until = last + 5000;
        const next = (at) => { all.push(at - last); last = at; if (at < until) requestAnimationFrame(next); else done(all); };
        requestAnimationFrame(next);
      }));
      const rate = bytes / (Date.now() - from); // KB/s
      await go(p, address("agent:main:other-7")); // its text is streamed once the page shows it
      const length = () => p.$$eval(".bubble.growing .text", (all) => Math.max(0, ...all.map((b) => b.textContent.length)));
      await send([["agent:main:other-7", "stream 7"]]); // on a busy machine the first answer may have ended by now
      let shown = Infinity;
      await eventually("the answer grows", async () => {
        const before = shown;
        return (shown = await length()) > before;
      });
      await ended();
      const longest = Math.round(Math.max(...gaps));
      t.diagnostic(`${gaps.length} frames of the screen, longest ${longest} ms, ${gaps.filter((g2) => g2 > 100).length} over 100 ms; received ${rate.toFixed(1)} KB/s`);
      assert.ok(rate <= 30, `${rate} KB/s`);
      assert.ok(longest < LONGEST_FRAME, `a frame of ${longest} ms`);
      clean(p);
      await p.context().close();
    });

    test("a conversation of 5,000 messages opens at its end, with at most 200 in the page", async (t) => {
      const key = "agent:echo:thousands";
      for (let n = 0; n < MESSAGES / 2; n += 50) {
        await send(Array.from({ length: 50 }, (_, i) => [key, `message ${n + i}`]));
        await ended();
      }
      const p = await open();
      await signIn(p, g.url, TOKEN);
      await p.waitForSelector(".figures");
      const times = [];
      for (let n = 0; n < 5; n++) {
        await go(p, "#/overview");
        await p.waitForSelector(".figures");
        const took = await p.evaluate((to) => new Promise((done) => {
          const from = performance.now();
          location.hash = to;
          const look = () => (document.querySelectorAll(".bubble").length > 0 ? requestAnimationFrame(() => done(performance.now() - from)) : requestAnimationFrame(look));
          look();
        }), address(key));
        times.push(Math.round(took));
      }
      t.diagnostic(`opened in ${times} ms`);
      assert.ok(Math.min(...times) < OPEN, `opened in ${times} ms`);
      assert.match(await p.textContent("#older"), /^4950 earlier messages: show 50$/);
      for (let n = 0; n < 5; n++) {
        const first = await p.locator(".bubble").first().textContent();
        await p.click("#older");
        await p.waitForFunction((was) => document.querySelector(".bubble").textContent !== was, first);
        assert.ok(await p.locator(".bubble").count() <= 200);
      }
      assert.match(await p.textContent("#older"), /^4700 earlier/);
      clean(p);
      await p.context().close();
    });
  });
}
