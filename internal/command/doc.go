// Package command is the chat commands: one table of values that every channel shares.
//
// A [Command] is a name, its aliases, what it takes, help, the method of the gateway that it stands for, and a function. The parser, /help, the list
// that clients get and the checks all come from the table, so a command that exists is documented and the other way round.
//
// Commands are recognised before debounce, queue and lanes, also as `/stop@botname`, behind a mention of the bot and in a
// caption, and they are executed at once: none of them waits for a slot, so /stop works while every lane is full.
//
// Jobs are planned in the short forms of package cron (`in 20m`, `15:00`, `every 30m`): /remind sends its text as it is, so it needs no model;
// /cron add sends it to the agent. Both answer where they were written.
//
// Commands act on the gateway through [Actions], which package dispatch satisfies. The package starts no goroutine.
package command
