// The patch of an edited draft and its command, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { beyond, command, draftOf, patchOf } from "../internal/dashboard/web/jobdraft.js";

const job = (missed) => ({
  name: "digest", schedule: { kind: "cron", expr: "0 9 * * *", tz: "UTC" }, sessionTarget: "isolated", payload: { kind: "agentTurn", message: "the digest" },
  overlap: "skip", missed: { policy: "fire_once", maxCatchup: 10, ...missed }, retry: { maxRetries: 3 }, timeoutSeconds: 0,
});

test("saving an edit keeps a job without a limit for missed slots", () => {
  const old = draftOf(job({ windowSeconds: null })), id = "j";
  assert.deepEqual(patchOf(old, old, {}), {});
  assert.deepEqual(patchOf(old, { ...old, name: "report" }, {}), { name: "report" });
  const patch = patchOf(old, { ...old, missed: "fire_all" }, {});
  assert.deepEqual(patch, { missed: { policy: "fire_all", maxCatchup: 10, windowSeconds: null } });
  assert.equal(command(old, id, patch), `laneway cron edit j '${JSON.stringify(patch)}'`);
  assert.deepEqual(beyond(job({ windowSeconds: null })), ["missed.windowSeconds"]);
});

test("an emptied field takes effect, with the same command", () => {
  const old = draftOf(job({ windowSeconds: 3600 }));
  assert.deepEqual(patchOf(old, { ...old, window: "90" }, {}), { missed: { policy: "fire_once", maxCatchup: 10, windowSeconds: 5400 } });
  assert.deepEqual(patchOf(old, { ...old, window: "" }, {}), { missed: { policy: "fire_once", maxCatchup: 10, windowSeconds: null } });
  const patch = patchOf(old, { ...old, overlap: "", retries: "" }, {});
  assert.deepEqual(patch, { overlap: null, retry: null });
  assert.equal(command(old, "j", patch), `laneway cron edit j '{"overlap":null,"retry":null}'`);
  assert.equal(command(old, "j", patchOf(old, { ...old, overlap: "concurrent" }, {})), "laneway cron edit j --overlap concurrent");
});
