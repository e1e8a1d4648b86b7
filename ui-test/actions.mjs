// How many actions a question takes, and how long. The tests record it in the file of ACTIONS; node actions.mjs FILE writes the table of docs/figures-scale.md from one
// run of all of them.

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";

const PAGE = new URL("../docs/figures-scale.md", import.meta.url);
const HEAD = "| question | actions | seconds |\n|---|---|---|\n";

const QUESTIONS = {
  healthy: ["is it healthy, and what needs me?", "0", "with the sign-in"],
  why: ["why did my 9:00 job not run?", "3: `/`, `digest 9:00`, Enter"],
  pointed: ["the same by pointer", "3: *Jobs*, the job, *why* at its run"],
  stop: ["stop it now", "1: *Stop*, on the overview or in the chat"],
  cancel: ["stop a run of a job", "2: *Jobs*, *Stop*"],
  runs: ["what runs, what waits, and for what?", "0", "after the messages were sent"],
  answer: ["what did the agent answer, at what cost?", "3: *Chat*, the conversation, *Cost* at the answer"],
  job: ["the same for a job", "2: *Jobs*, the job"],
  next: ["what runs next?", "1: *Jobs*; the next fire is first", "for a page of 10,000 jobs"],
  form: ["make a daily job, with its clock changes seen and chosen", "7"],
  person: ["let this person in", "3: *Decide* on the overview, *Approve…*, *Approve*"],
  first: ["let me try it", "4 after `laneway serve` and `laneway dashboard --print`: *Sign in*, *Try a message*, the words, Enter", "with both commands"],
  search: ["what was said about X?", "3: *Chat*, the words, the message"],
};

// measured records that the answer to a question took so many ms.
export function measured(t, question, ms) {
  const [, actions] = QUESTIONS[question];
  t.diagnostic(`${actions}; ${Math.round(ms)} ms`);
  if (process.env.ACTIONS) appendFileSync(process.env.ACTIONS, `${JSON.stringify({ question, ms })}\n`);
}

const seconds = (all) => [...new Set([Math.min(...all), Math.max(...all)].map((ms) => (ms / 1000).toFixed(1)))].join(" to ");

if (process.argv[1] === import.meta.filename) {
  const records = readFileSync(process.argv[2], "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const rows = Object.entries(QUESTIONS).map(([name, [question, actions, note]]) => {
    const all = records.filter((r) => r.question === name).map((r) => r.ms);
    if (all.length === 0) throw new Error(`the run has not measured "${question}"`);
    return `| ${question} | ${actions} | ${seconds(all)}${note ? ` ${note}` : ""} |\n`;
  });
  const [before, after] = readFileSync(PAGE, "utf8").split(HEAD);
  writeFileSync(PAGE, before + HEAD + rows.join("") + after.slice(after.search(/^(?!\|)/m)));
}
