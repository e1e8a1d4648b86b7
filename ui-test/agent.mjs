// An agent for the tests of the chat, which prints lines in the format of Claude Code. A word of the message selects what it does.

import { readFileSync } from "node:fs";

// The prompt has the conversation and the directory for files before the message, because this agent does not keep them.
const parts = readFileSync(0, "utf8").split("\n\n");
while (parts.length > 1 && /^(The conversation before|Added to the conversation|Files that the person|attempt \d)/.test(parts[0])) parts.shift();
const text = parts.join("\n\n");
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const say = (words) => print({ type: "assistant", message: { content: [{ type: "text", text: words }] } });
const HOSTILE = "<img src=x onerror=alert(1)>\u202egpj.exe";

if (text.includes("fail")) {
  print({ type: "result", is_error: true, result: `the model refused the key${text.includes("plainly") ? "" : ` ${HOSTILE} ${"w".repeat(64 * 1024)}`}` });
} else if (text.includes("wait")) {
  print({ type: "stream_event", event: { type: "content_block_delta", delta: { type: "text_delta", text: text.includes("wait for my review") ? "I read the changes first." : "I am **working**" } } });
  setInterval(() => {}, 1000); // until it is stopped
} else if (text.includes("refund")) { // for the pictures of the documentation
  print({ type: "assistant", message: { content: [{ type: "tool_use", id: "t1", name: "Bash", input: { command: "go test ./billing -run Refund" } }] } });
  print({ type: "user", message: { content: [{ type: "tool_result", tool_use_id: "t1", content: "--- FAIL: TestRefundOfThreeItems (0.00s)\n    refund_test.go:41: refund is 29.98, want 29.99\nFAIL" }] } });
  const answer = "Each item is rounded before the sum, so three items lose a cent. Round once, at the end:\n\n```go\nfunc Refund(items []Item) Money {\n\tvar sum Fraction\n\tfor _, i := range items {\n\t\tsum = sum.Add(i.Price.Times(i.Share))\n\t}\n\treturn sum.Round(2) // was: inside the loop\n}\n```\n\nThe test `TestRefundOfThreeItems` shows it: **29.98** instead of **29.99**. Shall I fix it on a branch?";
  say(answer);
  print({ type: "result", is_error: false, result: answer, usage: { input_tokens: 4210, output_tokens: 186 } });
} else {
  if (text.includes("tool")) {
    print({ type: "assistant", message: { content: [{ type: "tool_use", id: "t1", name: `Bash${HOSTILE}`, input: { command: `ls ${HOSTILE}` } }] } });
    print({ type: "user", message: { content: [{ type: "tool_result", tool_use_id: "t1", content: `a.txt ${HOSTILE} ${"w".repeat(64 * 1024)}` }] } });
  }
  say(text.includes("endless") ? `begin ${"word ".repeat(40_000)}end` : text);
  print({ type: "result", is_error: false, result: text.includes("endless") ? undefined : text, usage: { input_tokens: 1200, output_tokens: 300 } });
}
