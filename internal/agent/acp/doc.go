// Package acp is the runner for agents that speak the Agent Client Protocol over standard input and output, such as Claude Code, Gemini CLI or goose.
// The protocol's messages are those of github.com/coder/acp-go-sdk.
//
// # Processes
//
// Each session of the gateway has its own process. The first turn of the session starts it, and later turns reuse it ([pool]). A process runs
// one turn at a time; a second turn of the session waits for the first. A process that has been idle for the idle time is ended: its
// standard input is closed, and what remains after a second is killed. At most MaxProcesses live at the same time: a new one replaces the process
// that has been idle the longest. While all of them are busy, turns wait in order of arrival. A turn that another turn waits for fails as overloaded
// instead, because the two could wait for each other. [Runner.Close] ends all processes.
//
// The environment is clean, as for the command runner: PATH, HOME, LANG, TZ, the configured variables, LANEWAY_SESSION, LANEWAY_AGENT, and the variables of the tools (see below).
//
// # Turns
//
// A turn is one prompt ([turn]). The agent's text is streamed, its thoughts and plans are not shown, and its tool calls are events. The agent remembers the
// conversation itself, so a prompt has only the new messages and the transcript entries that the agent has not seen. An agent without that memory (first turn, /new,
// a session that it cannot continue) receives the history as JSON before the message, within the budget of the context window.
//
// # Sessions of the agent
//
// A new process continues the agent session of the previous process, if the agent supports this (see [agent.Sessions]): by session/resume, otherwise by
// session/load. The previous process ends first. Replayed updates are dropped. The session is stored before its first prompt and after each turn.
//
// # Tools
//
// If a turn has tools of the gateway, the agent's session has an MCP server named laneway: over HTTP if the agent supports it, otherwise the program [Config.Bridge].
// The process has the variables LANEWAY_MCP_URL and LANEWAY_MCP_TOKEN. A session outlives its turns, so all of them use the same token. It grants the tools and
// rights of the running turn, and nothing between turns.
//
// # Permissions
//
// A permission request becomes a question to the person of the turn ([agent.Asker]): a sentence with the command, the path or the tool, and the directory. It has the
// agent's options; each label begins with Allow or Deny, added by the gateway. Values from the agent are quoted, and invisible characters are escaped. The refusing
// option is chosen if no answer arrives in time, if the turn has no person to ask (jobs, hooks, the OpenAI interface), and above the limits. A stop answers open requests
// as cancelled. The gateway offers the agent no files and no terminals: the agent uses those of its own process.
//
// # Ending
//
// When the context of a turn ends, or its answer exceeds the limit, the gateway sends session/cancel and gives the agent one second to end the turn. Then its process
// group receives SIGTERM, and SIGKILL after one more second; the next turn starts a new process. A process that ends during a turn is a failure with the reason
// `program`; the message has its exit code and its last lines of standard error.
//
// # The SDK
//
// The SDK handles requests and responses. Notifications do not pass through it ([link]): its queue holds 1,024 of them and closes the connection when it is full. A
// fast agent fills it with one answer. This package reads them itself, in order with the responses, and a slow turn slows the agent down. Lines, open requests and
// questions are bounded.
//
// # Goroutines
//
// Each process has one that reads its output and reaps it ([peer.relay]), those of package process, those of the SDK, and one for each prompt or cancel in progress.
// The runner counts the first and the last, which end before Close returns. Those of the SDK end with the output of the process.
//
// # Crash
//
// When the gateway is killed, its agents read the end of their input and exit. The turn runs again in a new process, which continues the session or receives the
// history.
package acp
