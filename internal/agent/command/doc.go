// Package command is the runner that starts a program for each turn, so that a script or a coding agent can answer a
// session.
//
// # Starting
//
// The program receives its arguments as they are configured, without a shell: `$()`, quotes and newlines in a message have no
// special meaning. The items {session}, {message}, {run} and {agent} are replaced within an argument; everything else stays as it
// is. Without {message} the text of the turn goes to standard input. A message can begin with a dash, and a program would take it
// for an option, so put `--` before {message} or use standard input; [New] warns where neither is the case. With [InputJSON]
// standard input is one JSON document with history, senders, parameters, and attachments by their absolute paths.
//
// The environment is clean: PATH, HOME, LANG, TZ, what is configured, and
//
//	LANEWAY_SESSION, LANEWAY_RUN_ID, LANEWAY_AGENT, LANEWAY_ATTEMPT, LANEWAY_IDEMPOTENCY_KEY, LANEWAY_OUTPUT_DIR
//	LANEWAY_MCP_URL, LANEWAY_MCP_TOKEN: the tools of the gateway for this turn, as an MCP server, where the turn has tools
//
// # Answering
//
// Standard output is the answer and is streamed as it comes. If its first line is a JSON object with a member delta, final,
// error, usage or attach, the output is read as JSON lines instead:
//
//	{"delta": "new text"}
//	{"usage": {"inputTokens": 12, "outputTokens": 34, "model": "m"}}
//	{"error": "One sentence for the person.", "reason": "rate_limit"}
//	{"final": "the whole text"}
//	{"attach": {"path": "chart.png", "name": "Sales.png", "mimeType": "image/png"}}
//
// final adds what the deltas do not contain yet. Other members are ignored, and a later line that is not JSON counts as
// text. [OutputText] and [OutputJSON] choose the format without looking at the first line.
//
// # Conversations
//
// Claude Code ([OutputClaude]) and Codex ([OutputCodex]) keep a conversation themselves. The session that they report is stored ([Config.Sessions]),
// and the next turn of the session continues it: --resume ID or resume ID is added before the prompt. A new conversation starts with the history as
// JSON before the message, a continued one with what others have added to the transcript. A program that ends with a failure before it reports a
// session has refused to continue, and is started once more without it. Such turns of a session run one at a time.
//
// # Files
//
// What the program leaves in the directory LANEWAY_OUTPUT_DIR is sent to the person after the text. The directory is new, for this turn alone, and
// removed when the turn has ended; a turn that fails sends no files. JSON lines name each file with attach: path is relative to that directory,
// name is what the person sees (default: the file's), mimeType is found by content if it is missing. For a program that answers in plain text,
// every regular file in the directory itself is sent, in the order of names.
//
// Standard error goes to the log, a few lines per second, and its last lines are part of the error message when the program fails.
// Values of configured variables are taken out of both, because they may be keys.
//
// # Ending
//
// The program runs in its own process group. When the context is done, or the answer is longer than it may be, the group receives SIGTERM and two
// seconds later SIGKILL. When the program ends by itself, the processes that it left in its group are killed, and the runner does not wait for
// output that they hold open. A process that has left the group is killed too where a [process.Reaper] is configured; stronger isolation
// (containers, users) is left to the operator. An exit code other than 0 is a failure, also when there was an answer.
//
// Package process starts and ends the program; its goroutines have ended when Run returns.
//
//	runner, err := command.New(command.Config{
//		Argv: []string{"my-agent", "--session", "{session}"},
//	}, os.LookupEnv, log)
package command
