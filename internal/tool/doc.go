// Package tool is what agents may do through the gateway: one table of tools ([Table]), each a row with its name, description, JSON Schema, scope and
// function.
//
// The functions are thin: they read arguments strictly, call the services that people's commands call ([Deps]), and answer in one or
// two lines of text. A tool has no rights of its own. It acts for the owner of the turn, who is part of [Turn] by value, and reaches what is the
// owner's alone: other jobs and sessions do not exist for it.
//
// # Who may act
//
// A tool that creates or sends ([Tool.Acts]) runs only in a turn that its owner's own words caused. [Turn.NoActs] is the reason why it is refused
// otherwise: in turns of groups, webhooks and forwarded text, because those who write there are not the owner; in turns of jobs, because a job must not
// make jobs; in turns of several people. The model gets the reason as the result and can pass it on.
//
// # Keys
//
// Every call has a key that stays the same when the turn runs again. What a tool creates or sends is made under this key, so that a call whose result was not
// recorded can be repeated: all tools here are idempotent.
//
// # Failures
//
// A failure is a result with one sentence, never an error of the turn: wrong arguments, a refusal of a service, a panic of a function (with its stack in the
// log). The package starts no goroutine and keeps no state.
package tool
