// Package acp is the runner for agents that speak the Agent Client Protocol over standard input and output, such as Claude Code, Gemini CLI or goose.
// The protocol's messages are those of github.com/coder/acp-go-sdk.
//
// # Processes
//
// Each session of the gateway has a process of its own, which is started by the first turn of the session and is used for its later turns ([pool]). A process runs
// one turn at a time; a second turn of the session waits for the first. A process that was not used for the idle time ends: its
// standard input is closed, and what remains after a second is killed. At most MaxProcesses live at the same time: for a new one the process ends that
// was not used the longest. While all of them work, turns wait in their order; a turn that another turn waits for fails as overloaded, because both could wait for each
// other. [Runner.Close] ends all.
//
// The environment is clean, as for the command runner: PATH, HOME, LANG, TZ, what is configured, and LANEWAY_SESSION and LANEWAY_AGENT, and the tools of the turn, see below.
//
// # Turns
//
// A turn is one prompt ([turn]). Text of the agent is streamed; its thoughts and plans are not shown; its calls of tools are events. The agent remembers the
// conversation itself, so a turn gets its new messages, and entries of the transcript that the agent has not seen. An agent that begins new (first turn, /new, a session that it
// cannot take up) gets the history as JSON before the message, in the budget of the context window.
//
// # Sessions of the agent
//
// A process that was started for a conversation takes up the session that the agent had in the process before, where the agent can (see [agent.Sessions]): by session/resume, else
// session/load. The process before ends first. What the agent replays is dropped. The session is stored before its first prompt and after each turn.
//
// # Tools
//
// Where a turn has tools of the gateway, the agent's session gets an MCP server named laneway, over HTTP where the agent takes that, otherwise the program [Config.Bridge], and
// its process the variables LANEWAY_MCP_URL and LANEWAY_MCP_TOKEN. A session outlives its turns, so the token is the same in each of them; it has the tools and
// rights of the turn that runs, and between turns none.
//
// # Permissions
//
// A permission request becomes a question to the person of the turn ([agent.Asker]): a sentence with the command, the path or the tool, and the directory. Its options are
// those of the agent, each with the word of the gateway before the agent's label. Values of the agent stand between quotation marks, with escapes for what is not visible. Without an answer in time, without
// a person who can be asked (jobs, hooks, the OpenAI interface), and over the bounds, the option that refuses is chosen. A stop answers open requests as cancelled.
// The gateway offers the agent no files and no terminals: those of its own process are the agent's.
//
// # Ending
//
// When the context of a turn is over, or its answer is longer than it may be, the agent gets session/cancel and one second to end its turn. Then its process group
// gets SIGTERM, and after one more second SIGKILL; the next turn starts a new process. A process that ends within a turn is a failure with the reason `program`; its
// exit code and its last lines of standard error are in the sentence.
//
// # The SDK
//
// The SDK handles requests and responses. Notifications do not pass through it ([link]): its queue holds 1,024 of them and closes the connection when it is full, which a
// fast agent reaches with one answer. They are read here in their order with the responses, and a slow turn slows the agent down. Lines, open requests and
// questions are bounded.
//
// # Goroutines
//
// For each process: one reads its output and reaps it ([peer.keep]), those of package process, those of the SDK, and one for a prompt or a cancel under way. The first
// and the last are counted by the runner and end before Close returns; those of the SDK end with the output of the process.
//
// # Crash
//
// When the gateway is killed, its agents read the end of their input and end. The turn runs again in a new process, which takes up the session, or gets the
// history.
package acp
