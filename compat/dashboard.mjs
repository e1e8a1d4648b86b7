// node dashboard.mjs URL TOKEN [DIR]: the dashboard in Chromium. It keeps its token to this gateway and this tab, shows what the gateway does, and
// talks. With DIR every view is photographed there, in light and dark, wide and narrow.
import { createServer } from "node:http";
import { existsSync, readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { check, end, within } from "./report.mjs";

const [url, token, shots] = process.argv.slice(2);
const http = url.replace(/^ws/, "http").replace(/\/ws$/, "");
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
if (!executablePath) {
  console.log("FAIL there is no Chromium; install Debian's chromium or name one in CHROMIUM");
  process.exit(1);
}
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

// What another gateway would get if the page could be sent to it.
const heard = [];
const evil = createServer((req, res) => { heard.push(req.url); res.end(); });
evil.on("upgrade", (req, socket) => { heard.push(`upgrade ${req.url}`); socket.destroy(); });
evil.on("connection", () => heard.push("connection"));
await new Promise((done) => evil.listen(0, "127.0.0.1", done));
const elsewhere = `ws://127.0.0.1:${evil.address().port}/ws`;

async function page(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const p = await context.newPage();
  p.complaints = [];
  p.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") p.complaints.push(m.text()); });
  p.on("pageerror", (e) => p.complaints.push(String(e)));
  p.addresses = [];
  p.on("request", (r) => p.addresses.push(r.url()));
  p.on("websocket", (s) => p.addresses.push(s.url()));
  return p;
}
const visible = (p, selector) => p.waitForSelector(selector, { state: "visible", timeout: 15_000 });
const shoot = async (p, name) => { if (shots) await p.screenshot({ path: `${shots}/${name}.png` }); };

const p = await page();
await p.goto(`${http}/dashboard?gatewayUrl=${encodeURIComponent(elsewhere)}&token=${token}`);
await visible(p, "#signed-out");
check("a token in the query opens nothing", await p.isHidden("#signed-in"));
await shoot(p, "signed-out");
await p.fill("#token", "not-the-token-0123456789");
await p.click("#login button");
await p.waitForFunction(() => document.getElementById("login-fault").textContent !== "", null, { timeout: 15_000 });
check("a wrong token is told and not kept", (await p.textContent("#login-fault")).includes("token") && (await p.evaluate(() => sessionStorage.length)) === 0, await p.textContent("#login-fault"));
await p.fill("#token", token);
await p.click("#login button");
await visible(p, "#signed-in");
check("the right token shows the views", true);
check("the token is in the storage of the tab alone", await p.evaluate((t) => JSON.stringify(sessionStorage).includes(t) && localStorage.length === 0 && document.cookie === "", token));

const overview = await visible(p, "#view-overview");
await p.waitForFunction(() => /main/.test(document.getElementById("view-overview").textContent), null, { timeout: 15_000 });
const words = await overview.textContent();
check("the overview shows the lanes", ["main", "subagent", "team", "cron"].every((l) => words.includes(l)), words.slice(0, 300));
await shoot(p, "overview");

await p.click('a[href="#sessions"]');
await visible(p, "#view-sessions textarea");
await p.fill("#view-sessions textarea", "hello from the page <b>&amp; no markup</b>");
await p.press("#view-sessions textarea", "Enter");
await within(20_000, "the answer in the log", p.waitForFunction(
  () => (document.querySelector("#view-sessions .log").textContent.match(/hello from the page <b>&amp; no markup<\/b>/g) ?? []).length >= 2));
check("a message is answered on the page, and is text", (await p.locator("#view-sessions .log b").count()) === 0);
await shoot(p, "sessions");

// A picture and a table: chosen, shown at once, sent, and shown again from the gateway.
const drawing = await p.evaluate(() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 180 });
  const g = canvas.getContext("2d");
  g.fillStyle = "#f0c264"; g.fillRect(0, 0, 320, 180);
  g.fillStyle = "#1f6f5c"; g.beginPath(); g.arc(160, 180, 90, 0, 7); g.fill();
  return canvas.toDataURL("image/png").split(",")[1];
});
const files = [
  { name: "sunrise.png", mimeType: "image/png", buffer: Buffer.from(drawing, "base64") },
  { name: "table <b>.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n1,2\n") },
  { name: "page.html", mimeType: "text/html", buffer: Buffer.from("<script>document.title = 'ran'</script>") },
];
await p.setInputFiles('#view-sessions input[type="file"]', files);
check("chosen files stand above the line", (await p.locator("#view-sessions .chip").count()) === 3);
await shoot(p, "files-chosen");
await p.click('#view-sessions .chip button[aria-label="Remove page.html"]');
check("a chosen file can be removed", (await p.locator("#view-sessions .chip").count()) === 2);
await p.setInputFiles('#view-sessions input[type="file"]', files[2]);
await p.fill("#view-sessions textarea", "look at this");
await p.press("#view-sessions textarea", "Enter");
const drawn = (where) => where.waitForFunction(() => [...document.querySelectorAll("#view-sessions .file img")].some((i) => i.complete && i.naturalWidth === 320 && i.src.startsWith("blob:")), null, { timeout: 15_000 });
check("a picture is shown when it is sent", await drawn(p).then(() => true, () => false));
await within(20_000, "the answer to files", p.waitForFunction(() => (document.querySelector("#view-sessions .log").textContent.match(/look at this/g) ?? []).length >= 2));
await p.goto(`${http}/dashboard`); // the tab has the token
await visible(p, "#signed-in");
await p.click('a[href="#sessions"]');
check("the picture is shown from the gateway after a reload", await drawn(p).then(() => true, () => false));
const sentText = await p.locator("#view-sessions .bubble.user").last().textContent();
check("a file that is shown has no line in the text", sentText.includes("look at this") && sentText.includes("table <b>.csv") && !sentText.includes("[attachment"), sentText);
for (const f of files) {
  const [saved] = await within(15_000, `the file ${f.name}`, Promise.all([p.waitForEvent("download"), p.click(`#view-sessions .file button[title="Save ${f.name}"]`)]));
  check(`${f.name} is saved as it was sent`, Buffer.compare(readFileSync(await saved.path()), f.buffer) === 0 && saved.url().startsWith("blob:"), saved.suggestedFilename());
}
check("a page that was sent as a file does not run", (await p.title()) !== "ran");
await p.evaluate(() => {
  const data = new DataTransfer();
  data.items.add(new File(["dropped"], "dropped.txt", { type: "text/plain" }));
  document.querySelector("#view-sessions").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
});
check("a dropped file is taken", (await p.textContent("#view-sessions .chips")).includes("dropped.txt"));
await p.click('#view-sessions .chip button');
await p.setInputFiles('#view-sessions input[type="file"]', { name: "big.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(20 * 1024 * 1024 + 1) });
check("a file that is too large is named at once", (await p.locator("#view-sessions .chip").count()) === 0 && (await p.textContent("#view-sessions .head")).includes("big.bin"), await p.textContent("#view-sessions .head"));
await shoot(p, "files");

if (await p.isVisible("#nav-jobs")) {
  await p.click("#nav-jobs");
  await visible(p, "#view-jobs");
  await p.waitForTimeout(500); // for the photograph
  await shoot(p, "jobs");
  check("the jobs are shown", (await p.textContent("#view-jobs")).length > 0);
}
check("the page sends requests to this gateway alone", p.addresses.every((a) => a.startsWith(http) || a.startsWith(`blob:${http}`) || a.startsWith(url.replace(/\/ws$/, ""))), p.addresses.filter((a) => !a.startsWith(http)));
check("no address holds the token but the one that was typed", p.addresses.filter((a) => a.includes(token)).length <= 1, p.addresses.filter((a) => a.includes(token)).length);
check("another gateway hears nothing", heard.length === 0, heard);
check("the browser has nothing to complain about", p.complaints.length === 0, p.complaints);

const second = await page();
await second.goto(`${http}/dashboard#token=${token}`);
await visible(second, "#signed-in");
check("a token in the fragment is taken once and removed", !second.url().includes(token), second.url());
await second.reload();
await visible(second, "#signed-in");
check("a reload stays in, and asks nothing", await second.isHidden("#swap"));

// A link with another token: from anywhere, and for a page that is open already. Nothing is replaced unless the person says so.
const other = "another-token-0123456789-abcdefghij";
const stored = () => second.evaluate(() => JSON.stringify(sessionStorage));
for (const [how, follow] of Object.entries({
  "loaded anew": () => second.goto("about:blank").then(() => second.goto(`${http}/dashboard#token=${other}`)),
  "in the open page": () => second.evaluate((t) => { location.hash = `token=${t}`; }, other),
})) {
  await follow();
  await visible(second, "#swap");
  await shoot(second, `swap-${how.replaceAll(" ", "-")}`);
  check(`another token is asked about (${how})`, (await stored()).includes(token) && !(await stored()).includes(other) && !second.url().includes(other), second.url());
  await second.click('#swap button[value="keep"]');
  await visible(second, "#signed-in");
  check(`kept, the tab goes on with its token (${how})`, (await stored()).includes(token) && (await second.textContent("#link")).includes("connect"));
}
await second.evaluate((t) => { location.hash = `token=${t}`; }, other);
await visible(second, "#swap");
await second.keyboard.press("Escape");
await second.waitForSelector("#swap", { state: "hidden", timeout: 15_000 });
check("closing the question keeps the token", (await stored()).includes(token) && !(await stored()).includes(other));
await second.evaluate((t) => { location.hash = `token=${t}`; }, token);
await visible(second, "#view-overview");
check("the same token is no question", await second.isHidden("#swap") && !second.url().includes(token), second.url());

// What every object of the language has is no view.
for (const fragment of ["constructor", "__proto__", "toString", "hasOwnProperty", "nothing", "token"]) {
  await second.evaluate((f) => { location.hash = f; }, fragment);
  await visible(second, "#view-overview");
  check(`#${fragment} shows the overview`, await second.isHidden("#view-sessions"));
  await second.reload();
  await visible(second, "#view-overview");
}
check("no fragment breaks the page", second.complaints.length === 0, second.complaints);

await second.evaluate((t) => { location.hash = `token=${t}`; }, other);
await visible(second, "#swap");
await second.click('#swap button[value="take"]');
await visible(second, "#signed-out");
check("a new token that is wrong leads to the sign-in page, and nothing is kept", (await second.evaluate(() => sessionStorage.length)) === 0);
await second.goto("about:blank");
await second.goto(`${http}/dashboard#token=${token}`);
await visible(second, "#signed-in");
await second.click("#leave");
await visible(second, "#signed-out");
check("signing out forgets", await second.evaluate(() => sessionStorage.length) === 0);

// On a telephone: nothing of the jobs is outside of the screen, and no value is squeezed into a column of words.
const maker = await page();
await maker.goto(`${http}/dashboard#token=${token}`);
await visible(maker, "#signed-in");
await maker.evaluate(async (t) => {
  const { Gateway } = await import("/dashboard/rpc.js");
  const names = ["digest of the morning", "a_very_long_name_without_any_blank_that_a_program_gave_to_its_job"];
  const job = { schedule: { kind: "cron", expr: "0,15,30,45 9-17 * * MON-FRI", tz: "America/Argentina/Buenos_Aires" }, sessionTarget: "isolated", payload: { kind: "agentTurn", message: "say **hello**" } };
  await new Promise((done, failed) => {
    const gateway = new Gateway(t, {
      up: () => Promise.all(names.map((name) => gateway.call("cron.add", { name, ...job }))).then(() => { gateway.close(); done(); }, failed),
      refused: failed, event: () => {}, down: () => {},
    });
    gateway.open();
  });
}, token);
await maker.close();
const phone = await page({ viewport: { width: 390, height: 800 } });
await phone.goto(`${http}/dashboard#token=${token}`);
await visible(phone, "#signed-in");
await phone.goto(`${http}/dashboard#jobs`);
await visible(phone, "#view-jobs .acts button");
const outside = await phone.evaluate(() => [...document.querySelectorAll("#view-jobs button, #view-jobs td, .bar button, .bar a")]
  .filter((n) => n.getClientRects().length > 0).map((n) => [n.textContent, n.getBoundingClientRect()])
  .filter(([, r]) => r.left < 0 || r.right > innerWidth + 1).map(([text, r]) => `${text} ${Math.round(r.left)}..${Math.round(r.right)}`));
check("on a telephone no button and no cell of the jobs is outside of the screen", outside.length === 0, outside);
const tall = await phone.evaluate(() => [...document.querySelectorAll('#view-jobs td[data-head="Next"], #view-jobs td:nth-child(3)')].map((n) => n.getBoundingClientRect().height).filter((h) => h > 50));
check("the next fire stands on two lines at most", tall.length === 0, tall);
await phone.click("#view-jobs .acts button");
await phone.waitForTimeout(1000);
await phone.click("#view-jobs .link-like");
await phone.waitForSelector("#view-jobs .row, #view-jobs .card:nth-child(2) .quiet", { state: "visible", timeout: 15_000 });
check("the runs of a job fit, too", await phone.evaluate(() => document.querySelector("#view-jobs").scrollWidth <= innerWidth));
check("the page does not scroll sideways", await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.querySelector("#view-jobs .scroll").scrollWidth <= document.querySelector("#view-jobs .scroll").clientWidth));
await phone.close();

if (shots) {
  for (const [name, options] of Object.entries({ dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 800 } }, "phone-dark": { viewport: { width: 390, height: 800 }, colorScheme: "dark" } })) {
    const one = await page(options);
    await one.goto(`${http}/dashboard#token=${token}`);
    await visible(one, "#signed-in");
    for (const view of ["overview", "sessions", "jobs"]) {
      await one.goto(`${http}/dashboard#${view}`);
      await one.waitForTimeout(700);
      await shoot(one, `${view}-${name}`);
    }
  }
}
await browser.close();
evil.close();
end();
