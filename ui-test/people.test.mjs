// "Let this person in" on the page of the real binary in Chromium: a person asks over Telegram, and is let in from the overview.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { measured } from "./actions.mjs";
import { clean, closeBrowser, findings, open, openBrowser, outside, signIn } from "./browser.mjs";
import { ENGINES, Gateway, TOKEN, eventually } from "./gateway.mjs";
import { telegram } from "./telegram.mjs";

before(() => openBrowser());
after(() => closeBrowser());

for (const engine of ENGINES) {
  describe(`on ${engine}`, () => {
    let g, bots;
    const people = async () => JSON.parse(await g.cli("pair", "list", "--json"));
    before(async () => {
      bots = await telegram();
      g = await Gateway.start(engine, { more: bots.settings });
    });
    after(async () => { await g.stop(); bots.close(); });

    for (const [id, viewport] of [[4711, { width: 1440, height: 900 }], [4712, { width: 390, height: 844 }]]) {
      test(`question 8 at ${viewport.width} px: a person is let in from the overview, and it can be taken back`, async (t) => {
        bots.write(id, "Anna", "hello");
        await eventually("Anna asks", async () => (await people()).requests.length === 1);
        const p = await open({ viewport });
        await signIn(p, g.url, TOKEN);
        const from = Date.now();
        await p.click(".needs a[href='#/people']");
        await p.click("button:has-text('Approve…')");
        await p.waitForSelector(`dialog li:has-text('${id}')`);
        const asked = Date.now();
        assert.deepEqual(await outside(p), []);
        assert.deepEqual(await findings(p), []);
        const answered = Date.now();
        await p.click("#sure");
        await p.waitForSelector(`table[aria-label='May talk'] tr:has-text('${id}')`);
        measured(t, "person", Date.now() - from - (answered - asked));
        bots.write(id, "Anna", "are you there?");
        await eventually("the agent answers", () => bots.sent.get(id)?.some((text) => text.includes("are you there?")));
        await p.click("#undo");
        await p.waitForSelector(`table[aria-label='May talk'] tr:has-text('${id}')`, { state: "detached" });
        assert.equal((await people()).granted.some((one) => one.senderId === String(id)), false);
        clean(p);
        await p.context().close();
      });
    }
  });
}
