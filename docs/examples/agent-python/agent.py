#!/usr/bin/env python3
"""An agent in Python, for the runner command with `input: json`: the request is one JSON object on standard input, the answer is JSON lines.

    agents:
      main: {runner: command, command: [python3, /path/to/agent.py], input: json}

It counts the messages of the person in this conversation, and streams words while it works. It needs only the standard library.
"""

import json
import os
import signal
import sys
import urllib.error
import urllib.request


def send(**members):
    """Writes one line of the answer and flushes, so that the person sees it at once."""
    print(json.dumps(members), flush=True)


def stopped(_signal, _frame):
    """Handles the stop of the turn: two seconds are left. The lines written so far stay in the conversation."""
    sys.exit(0)


def call_tool(name, arguments):
    """Calls a tool of the gateway for the person of this turn, and returns its text: a result, or why the call was refused.

    The server is MCP over HTTP without sessions, so one request is enough. The token ends with the turn.
    """
    request = urllib.request.Request(
        os.environ["LANEWAY_MCP_URL"],
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}).encode(),
        {
            "Authorization": "Bearer " + os.environ["LANEWAY_MCP_TOKEN"],
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    if "error" in answer:
        return answer["error"]["message"]
    return "".join(part["text"] for part in answer["result"]["content"])


def main():
    signal.signal(signal.SIGTERM, stopped)
    request = json.load(sys.stdin)
    prompt = request["prompt"]
    before = [entry for entry in request["history"] if entry["role"] == "user"]
    if prompt.startswith("fail"):
        # reason is one of the values in docs/agents.md; a job repeats its turn after overloaded, but not after auth.
        send(error="The calendar is locked.", reason="overloaded")
        return
    if prompt.startswith("remind"):
        try:
            send(final=call_tool("remind", {"when": "in 2h", "text": prompt.removeprefix("remind").strip()}))
        except (KeyError, urllib.error.URLError) as missing:  # without the variables, this turn has no tools
            send(error=f"I have no tools in this conversation: {missing}", reason="program")
        return
    for word in f"Message {len(before) + 1}: {prompt}".split(" "):
        send(delta=word + " ")
    if prompt.startswith("chart"):
        with open(os.path.join(os.environ["LANEWAY_OUTPUT_DIR"], "chart.csv"), "w", encoding="utf-8") as chart:
            chart.write("day,messages\n1,%d\n" % (len(before) + 1))
        send(attach={"path": "chart.csv", "name": "Messages.csv"})
    send(usage={"inputTokens": len(prompt.split()), "outputTokens": 3, "model": "counting"})


if __name__ == "__main__":
    main()
