// node shots.mjs DIR takes pictures of each page at three widths, light and dark: empty, full, and while the gateway does not answer.
// node shots.mjs DIR docs takes the pictures of the documentation: real content, twice the pixels, and fonts that every machine has.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
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

// fonts are those of the pictures of the documentation, so that they look the same on every machine.
function fonts() {
  const require = createRequire(import.meta.url);
  const face = (family, name, weight) => `@font-face { font-family: ${family}; font-weight: ${weight}; src: url(data:font/woff2;base64,${readFileSync(require.resolve(`@fontsource/${name}/files/${name}-latin-${weight}-normal.woff2`)).toString("base64")}); }`;
  return `${[400, 600, 700].map((w) => face("Inter", "inter", w) + face("JetBrains", "jetbrains-mono", w)).join("\n")} body { font-family: Inter, sans-serif !important; } code, pre { font-family: JetBrains, monospace !important; }`;
}

// documented takes the pictures of the documentation in one gateway: an overview, a conversation with a tool call and code, a permission on a phone, why a job
// did not run, and the form of a job.
async function documented() {
  const agent = (name) => new URL(name, import.meta.url).pathname;
  const shop = join(tmpdir(), "shop"); // the directory of the project, which the question names
  mkdirSync(shop, { recursive: true });
  const g = await Gateway.start("sqlite", {
    agent: `main: {runner: command, command: [${process.execPath}, ${agent("agent.mjs")}], output: claude}\n  claude: {runner: acp, command: [${process.execPath}, ${agent("asking.mjs")}], dir: ${shop}}`,
    more: "lanes: {main: 4}\ncron: {timezone: Europe/Berlin}\ncluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\n",
  });
  const page = async (options) => {
    const p = await open({ deviceScaleFactor: 2, bypassCSP: true, locale: "en-GB", timezoneId: "Europe/Berlin", ...options });
    await signIn(p, g.url, TOKEN);
    await p.addStyleTag({ content: fonts() });
    return p;
  };
  const picture = async (p, name) => {
    await p.evaluate(() => document.fonts.ready);
    await p.waitForLoadState("networkidle");
    await p.evaluate(() => { if (document.activeElement?.matches("h1, h2")) document.activeElement.blur(); });
    await p.screenshot({ path: join(dir, `dashboard-${name}.png`), animations: "disabled" });
  };
  const job = (name, message, ...rest) => g.cli("cron", "add", "--name", name, "--message", message, "--tz", "Europe/Berlin", ...rest);
  try {
    await job("watch", "Look at the error rate of the shop", "--every", "2s", "--missed", "skip");
    const runs = async () => JSON.parse(await g.cli("cron", "runs", "watch", "--json")).entries;
    await eventually("a run of watch has ended", async () => (await runs()).length > 0);
    await g.kill();
    const killed = Date.now();
    await eventually("slots pass while no gateway is there", () => Date.now() - killed > 5_000);
    await g.serve();
    const missed = await eventually("the slots of the outage are decided", async () => (await runs()).find((r) => r.outcome === "missed"));
    await g.cli("cron", "pause", "watch", "--note", "until the migration is done");
    await job("digest", "Summarise what the team did yesterday", "--cron", "0 9 * * 1-5");
    await job("invoices", "Send the invoices of last week", "--cron", "0 8 * * 1");
    await job("deploy-check", "Check that the nightly deploy is up: please fail plainly", "--cron", "30 6 * * *", "--retries", "0");
    await g.cli("cron", "run", "digest", "--wait");
    for (let i = 0; i < 3; i++) await g.cli("cron", "run", "deploy-check", "--wait").catch(() => {}); // the command fails with the run
    const p = await page();
    await go(p, `#/jobs/${missed.jobId}?why=${encodeURIComponent(new Date(missed.scheduledForMs).toISOString())}`);
    await p.waitForSelector("#why-answer .sentence");
    await picture(p, "why");
    await go(p, "#/jobs");
    await p.waitForSelector("main tbody tr");
    await picture(p, "jobs");
    await p.click("#new-job");
    await p.getByLabel("Name", { exact: true }).fill("night-report");
    await p.getByLabel("Time", { exact: true }).fill("02:30");
    await p.getByLabel("Time zone").fill("Europe/Berlin");
    await p.getByLabel("Message").fill("Compare last night's sales with the week before");
    await p.waitForFunction(() => /02:30/.test(document.querySelector("main").textContent) && /clock/i.test(document.querySelector("main").textContent));
    await picture(p, "form");
    await go(p, `#/chat/${encodeURIComponent("agent:main:refunds")}`);
    await p.fill("textarea", "Why do refunds differ by a cent?");
    await p.press("textarea", "Enter");
    await p.waitForSelector(".bubble:not(.growing) code");
    await p.locator("main summary", { hasText: "Bash" }).click(); // the page has the call in full while it is open
    await picture(p, "chat");

    const phone = await page({ viewport: { width: 390, height: 844 }, colorScheme: "dark" });
    await go(phone, `#/chat/${encodeURIComponent("agent:claude:shop")}`);
    await phone.fill("textarea", "Fix the refund bug and push it");
    await phone.press("textarea", "Enter");
    await phone.waitForSelector(".question .answers button");
    await picture(phone, "phone");

    const work = ["Write the release notes of 2.4", "Review the pull request about currencies", "Find the slowest query of last night", "Translate the help pages into French", "Update the dependencies of the shop"];
    for (const [i, text] of work.entries()) g.cli("send", `${text}, then wait for my review`, "--session", `agent:main:${["notes", "review", "queries", "french", "updates"][i]}`, "--no-wait").catch(() => {}); // these run until the end
    await go(p, "#/overview");
    await p.waitForFunction(() => document.querySelectorAll("main tbody tr").length > 8);
    await picture(p, "overview");
    g.signal("SIGSTOP");
    await p.emulateMedia({ colorScheme: "dark" });
    await eventually("the page shows that the gateway does not answer", async () => (await p.textContent("#link")).includes("not answering"), 60_000);
    await picture(p, "stale");
    g.signal("SIGCONT");
  } finally {
    await closeBrowser();
    await g.stop();
  }
}

async function everything() {
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
}

await openBrowser();
await (process.argv[3] === "docs" ? documented() : everything());
console.log(`the pictures are in ${dir}`);
