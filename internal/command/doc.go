// Package command implements the chat commands: one table that every channel shares.
//
// A [Command] has a name, aliases, arguments, help, the corresponding method of the gateway, and a function. The parser, /help, the list
// for clients and the checks all use the table, so the help lists exactly the commands that exist.
//
// Commands are recognised before debounce, queue and lanes, also as `/stop@botname`, after a mention of the bot and in a caption. They are
// executed at once and do not wait for a slot, so /stop works while every lane is full.
// Jobs are scheduled with the short forms of package cron (`in 20m`, `15:00`, `every 30m`). /remind sends its text unchanged, so it needs
// no model; /cron add sends it to the agent. Both reply in the chat where they were written.
//
// Commands act on the gateway through [Actions], which package dispatch implements. The package starts no goroutine.
package command
