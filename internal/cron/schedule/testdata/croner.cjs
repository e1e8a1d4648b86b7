// Reads lines of {"expr", "tz", "afterMs", "n"} and answers each with the next n
// fires in Unix milliseconds, as the package croner sees them. The directory that
// holds node_modules is the first argument.
"use strict";
const path = require("node:path");
const readline = require("node:readline");
const { Cron } = require(path.join(process.argv[2], "node_modules", "croner"));

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { expr, tz, afterMs, n } = JSON.parse(line);
  let answer;
  try {
    const job = new Cron(expr, { timezone: tz, paused: true });
    answer = { fires: job.nextRuns(n, new Date(afterMs)).map((d) => d.getTime()) };
  } catch (err) {
    answer = { error: String(err) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
