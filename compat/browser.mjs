// node browser.mjs URL TOKEN: a page in Chromium connects, chats, loses its connection and catches up; a page from elsewhere cannot.
import { createServer } from "node:http";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { check, end } from "./report.mjs";

const [url, token] = process.argv.slice(2);
const http = url.replace(/^ws/, "http").replace(/\/ws$/, "");
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
if (!executablePath) {
  console.log("FAIL there is no Chromium; install Debian's chromium or name one in CHROMIUM");
  process.exit(1);
}
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

// conversation runs inside of the page, with what a browser has and nothing else.
async function conversation({ ws, secret }) {
  const open = () => new Promise((yes, no) => {
    const socket = new WebSocket(ws);
    const client = { socket, events: [], calls: new Map(), waiting: [], n: 0 };
    client.call = (method, params) => new Promise((done) => {
      client.calls.set(String(++client.n), done);
      socket.send(JSON.stringify({ type: "req", id: String(client.n), method, params }));
    });
    client.chat = (run, state) => new Promise((done) => {
      const want = (f) => f.event === "chat" && f.payload.runId === run && f.payload.state === state;
      const there = client.events.find(want);
      if (there) done(there); else client.waiting.push({ want, done });
    });
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "res") return client.calls.get(frame.id)?.(frame);
      client.events.push(frame);
      client.waiting = client.waiting.filter((w) => !(w.want(frame) && (w.done(frame), true)));
    };
    socket.onerror = () => no(new Error("refused"));
    socket.onopen = () => yes(client);
  });
  const login = async () => {
    const c = await open();
    const hello = await c.call("connect", {
      minProtocol: 4, maxProtocol: 4, auth: { token: secret }, scopes: ["operator.read", "operator.write"], caps: ["laneway-ext"],
      client: { id: "page", version: "1", platform: "web", mode: "webchat" },
    });
    return { c, hello };
  };
  const said = (m) => m.content.map((p) => p.text).join("");
  const sessionKey = `agent:main:page-${Date.now()}`;
  const send = (c, message) => c.call("chat.send", { sessionKey, message, idempotencyKey: `p-${Date.now()}-${Math.random()}` });

  const { c, hello } = await login();
  const first = (await send(c, "hello from a page")).payload.runId;
  const echo = said((await c.chat(first, "final")).payload.message);
  const { deltaCursor } = (await c.call("chat.history", { sessionKey })).payload;
  const cut = (await send(c, "an answer that is cut off")).payload.runId;
  await c.chat(cut, "delta");
  c.socket.close();

  const again = (await login()).c;
  await again.call("sessions.subscribe", {});
  let got = [];
  let cursor = deltaCursor;
  let inFlight = null;
  while (!got.some((m) => m.role === "assistant")) {
    const page = (await again.call("chat.history", { sessionKey, cursor })).payload;
    got = got.concat(page.messages);
    cursor = page.deltaCursor;
    inFlight ??= page.inFlightRun ?? null;
    if (page.inFlightRun) await again.chat(cut, "final");
  }
  again.socket.close();
  return { hello: hello.ok, echo, cut, inFlight: inFlight?.runId, got: got.map((m) => `${m.role} ${said(m)}`) };
}

try {
  const page = await browser.newPage();
  const answer = await page.goto(`${http}/dashboard`);
  check("the gateway serves the page", answer.ok() || answer.status() === 404, answer.status());
  const r = await page.evaluate(conversation, { ws: url, secret: token });
  check("connect", r.hello === true, r);
  check("the answer is the echo", r.echo === "hello from a page", r);
  check("the run under way is named", r.inFlight === r.cut, r);
  check("every message once", r.got.join() === "user an answer that is cut off,assistant an answer that is cut off", r.got);

  const elsewhere = createServer((_, res) => res.end("<!doctype html><title>elsewhere</title>"));
  await new Promise((yes) => elsewhere.listen(0, "127.0.0.1", yes));
  for (const [name, from] of [["another port", `http://127.0.0.1:${elsewhere.address().port}`], ["another name", `http://localhost:${elsewhere.address().port}`]]) {
    const foreign = await browser.newPage();
    await foreign.goto(from);
    const refused = await foreign.evaluate(conversation, { ws: url, secret: token }).then(() => "opened", (e) => e.message);
    check(`a page from ${name} is refused with the right token`, refused.includes("refused"), refused);
  }
  const opaque = await browser.newPage();
  await opaque.setContent("<!doctype html>");
  const refused = await opaque.evaluate(conversation, { ws: url, secret: token }).then(() => "opened", (e) => e.message);
  check("a page without an origin is refused", refused.includes("refused"), refused);
  elsewhere.close();
} finally {
  await browser.close();
}
end();
