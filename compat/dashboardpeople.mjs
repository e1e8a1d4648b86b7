// node dashboardpeople.mjs URL TOKEN NAME [DIR]: a person of Telegram stands in the list of sessions by NAME, and their photo is shown.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { check, end } from "./report.mjs";

const [url, token, name, shots] = process.argv.slice(2);
const http = url.replace(/^ws/, "http").replace(/\/ws$/, "");
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));
if (!executablePath) {
  console.log("FAIL there is no Chromium; install Debian's chromium or name one in CHROMIUM");
  process.exit(1);
}
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const p = await browser.newPage({ viewport: { width: 1200, height: 800 } });
const complaints = [];
p.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") complaints.push(m.text()); });
await p.goto(`${http}/dashboard`);
await p.fill("#token", token);
await p.click("form button.primary");
await p.click('#nav a[href="#/chat"]');
const item = p.locator(".item", { hasText: name });
await item.waitFor({ timeout: 15_000 }).catch(() => {});
const list = await p.textContent(".list");
check("a person stands in the list by name, and not by the address of the chat", list.includes(name) && !list.includes("direct:"), list);
await item.click({ timeout: 5000 }).catch((e) => check("the person can be chosen", false, String(e)));
const drawn = await p.waitForFunction(() => [...document.querySelectorAll(".file img")].some((i) => i.complete && i.naturalWidth > 0), null, { timeout: 15_000 }).then(() => true, () => false);
check("a photo from Telegram is shown", drawn, await p.textContent(".log"));
check("the browser reports nothing", complaints.length === 0, complaints);
if (shots) await p.screenshot({ path: `${shots}/people-photo.png` });
await browser.close();
end();
