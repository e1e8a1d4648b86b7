// node shots.mjs DIR takes pictures of each page at three widths, light and dark: empty, full, and while the gateway does not answer.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { closeBrowser, go, live, open, openBrowser, signIn } from "./browser.mjs";
import { Gateway, TOKEN, eventually } from "./gateway.mjs";

const dir = process.argv[2] ?? "dist/shots";
mkdirSync(dir, { recursive: true });
const SCREENS = [[1440, 900], [834, 1112], [390, 844]];
const PAGES = ["overview", "chat", "chat/agent:main:main", "jobs", "people"];

async function shoot(p, name) {
  await p.evaluate(() => { if (document.activeElement?.matches("h1, h2")) document.activeElement.blur(); }); // the sign-in by keyboard leaves the focus there
  for (const [width, height] of SCREENS) {
    await p.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await p.emulateMedia({ colorScheme });
      await p.screenshot({ path: join(dir, `${name.replaceAll(/[/:]/g, "-")}-${width}-${colorScheme}.png`), animations: "disabled" });
    }
  }
}

async function each(p, kind) {
  for (const page of PAGES) {
    await go(p, `#/${page}`);
    await p.waitForFunction(() => document.querySelector("main .item, main tbody tr, main .bubble, main .empty"));
    await p.waitForLoadState("networkidle");
    await shoot(p, `${page}-${kind}`);
  }
}

// chat takes pictures of a conversation with Markdown, a tool call, a failure, a queue, a search and the dialog before a reset.
async function chat(p, g) {
  const key = "agent:coder:trip", say = (text) => g.cli("send", text, "--session", key);
  await say("tool: compare the trains to **Lyon** and Turin\n\n| train | hours |\n|---|---|\n| Lyon | 6:10 |\n| Turin | 9:45 |\n\n1. change in Paris\n2. see [the table](https://example.com/trains)\n\n```sh\nlaneway cron list\n```");
  await say("please fail plainly").catch(() => {}); // the command fails with the turn
  await go(p, `#/chat/${encodeURIComponent(key)}`);
  await p.fill("textarea", "wait until the page is full");
  await p.press("textarea", "Enter");
  await p.waitForSelector(".bubble.growing");
  for (const text of ["And tomorrow?", "hello??"]) { await p.fill("textarea", text); await p.press("textarea", "Enter"); }
  await p.waitForFunction(() => document.querySelectorAll(".queue li").length === 2 && document.querySelector(".bubble.growing"));
  await shoot(p, "chat-talk-full");
  await p.click("#reset");
  await p.waitForSelector("dialog[open]");
  await shoot(p, "chat-reset-full");
  await p.keyboard.press("Escape");
  await go(p, "#/chat");
  await p.fill('input[type="search"]', "turin");
  await p.waitForSelector(".item.hit");
  await shoot(p, "chat-search-full");
  await p.locator(".item.hit").last().click();
  await p.waitForSelector(".bubble.hit");
  await shoot(p, "chat-hit-full");
  await p.evaluate(() => { document.querySelector('input[type="search"]').value = ""; document.querySelector('input[type="search"]').dispatchEvent(new Event("input", { bubbles: true })); });
  await p.click("#stopall").then(() => p.click("#sure"));
}

// why makes slots that are missed while no gateway runs, and takes pictures of the explanation.
async function why(p, g) {
  await g.cli("cron", "add", "--name", "watch", "--every", "2s", "--missed", "skip", "--message", "Look at the queue");
  const runs = async () => JSON.parse(await g.cli("cron", "runs", "watch", "--json")).entries;
  await eventually("a run of watch has ended", async () => (await runs()).length > 0);
  await g.kill();
  const killed = Date.now();
  await eventually("slots pass while no gateway is there", () => Date.now() - killed > 5_000);
  await g.serve();
  const missed = await eventually("the slots of the outage are decided", async () => (await runs()).find((r) => r.outcome === "missed"));
  await g.cli("cron", "pause", "watch");
  await live(p);
  await go(p, `#/jobs/${missed.jobId}?why=${encodeURIComponent(new Date(missed.scheduledForMs).toISOString())}`);
  await p.waitForSelector("#why-answer .sentence");
  await shoot(p, "why-full");
}

// job takes pictures of a failing job, of a job with missed runs, and of the dialog that pauses a job.
async function job(p, g) {
  await g.cli("cron", "add", "--name", "deploy", "--cron", "0 7 * * *", "--tz", "Europe/Berlin", "--agent", "coder", "--retries", "0", "--message", "please fail plainly");
  for (let i = 0; i < 3; i++) await g.cli("cron", "run", "deploy", "--wait").catch(() => {}); // the command fails with the run
  const { id } = JSON.parse(await g.cli("cron", "list", "--query", "deploy", "--json")).jobs[0];
  await go(p, `#/jobs/${id}`);
  await p.waitForSelector("table[aria-label='Runs'] .shape.error");
  await shoot(p, "job-full");
  await p.click(".title .pause");
  await p.fill("#note", "holidays");
  await p.selectOption("#until", "week");
  await shoot(p, "job-pause-full");
  await p.keyboard.press("Escape");
}

// fill makes jobs in each state, conversations, and busy lanes, one of them full.
async function fill(g) {
  const job = (name, ...rest) => g.cli("cron", "add", "--name", name, "--message", `Run the ${name}`, ...rest);
  await job("digest", "--cron", "0 9 * * MON-FRI", "--tz", "Europe/Berlin");
  await job("weekly-report", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin");
  await job("night-report", "--cron", "30 2 * * *", "--tz", "Europe/Berlin");
  await job("heartbeat", "--every", "6h");
  await job("a_name_that_a_program_gave_to_its_job_without_any_blank", "--cron", "0,15,30,45 9-17 * * MON-FRI", "--tz", "America/Argentina/Buenos_Aires");
  await g.cli("cron", "run", "digest", "--wait");
  await g.cli("cron", "run", "night-report", "--wait");
  await g.cli("cron", "pause", "heartbeat", "--note", "holidays");
  await g.cli("send", "What about **tomorrow**?\n- morning\n- evening\n```sh\nlaneway cron list\n```");
  await g.cli("send", "deploy?", "--session", "agent:main:ops");
  for (let i = 0; i < 6; i++) g.cli("send", "work ".repeat(2000), "--session", `agent:main:load-${i}`, "--no-wait").catch(() => {}); // these run longer than the pictures take
}

await openBrowser();
const program = new URL("agent.mjs", import.meta.url).pathname;
const g = await Gateway.start("sqlite", { agent: `main: {runner: echo, chunk: 40, chunk_delay: 400ms}\n  coder: {runner: command, command: [${process.execPath}, ${program}], output: claude}`, more: "default_agent: main\nlanes: {main: 4}\ncluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\n" });
try {
  const out = await open();
  await out.goto(`${g.url}/dashboard`);
  await out.waitForSelector("#token");
  await shoot(out, "sign-in");
  await go(out, `token=${TOKEN}`);
  await out.waitForSelector("dialog[open]");
  await shoot(out, "question");
  const p = await open();
  await signIn(p, g.url, TOKEN);
  await each(p, "empty");
  await why(p, g);
  await chat(p, g);
  await fill(g);
  await job(p, g);
  await each(p, "full");
  await go(p, "#/overview");
  g.signal("SIGSTOP");
  await eventually("the page shows that the gateway does not answer", async () => (await p.textContent("#link")).includes("not answering"));
  await each(p, "stale");
  g.signal("SIGCONT");
  await live(p);
  await g.kill();
  await p.waitForSelector("#link:has-text('offline')");
  await each(p, "offline");
} finally {
  await closeBrowser();
  await g.stop();
}
console.log(`the pictures are in ${dir}`);
