// Package tool is what agents may do through the gateway: one table of tools ([Table]), each a row with its name, description, JSON Schema, scope and
// function.
//
// The functions are thin: they read arguments strictly, call the services that people's commands call ([Deps]), and answer in one or
// two lines of text. A tool has no rights of its own. It acts for the owner of the turn, who is part of [Turn] by value, and reaches what is the
// owner's alone: other jobs and sessions do not exist for it.
//
// # Who may act
//
// A tool that creates or sends ([Tool.Acts]) runs only in a turn that its owner's own words caused. In a turn of a group, of text from outside, or
// behind the output of a tool from outside, a person is asked first ([Turn.Asks]): the call becomes a [Pending] one, the model gets a sentence, and the turn
// goes on. A call that would fail becomes no question ([Tool.Check]). When the person allows it, [Table.Make] makes the call for them, under its key. Where no
// person can be asked, and in turns of jobs, it is refused ([Turn.NoActs]), because a job must not make jobs. In turns of several principals no tool runs
// ([Turn.Barred]): each tool reaches what is one principal's alone, and nothing is common to two. The model gets the reason as the result and can pass it on.
//
// Starting a sub-turn is neither: it runs in every turn, and its turn has the rights of the one that asked ([Tasks]).
//
// # Who reads
//
// A turn has an audience ([Turn.Audience]). Where others than the owner read its answer, tools return what belongs to the conversation of these readers. A call that goes
// beyond it ([Tool.Beyond]) needs the owner's answer to a question that names the readers, or is refused. [Table.Make] makes it as if the owner alone read the result.
//
// # Keys
//
// Every call has a key that stays the same when the turn runs again. What a tool creates or sends is made under this key, so that a call whose result was not
// recorded can be repeated: all tools here are idempotent. The key of a call that starts a sub-turn is the id of the sub-turn.
//
// # Failures
//
// A failure is a result with one sentence, never an error of the turn: wrong arguments, a refusal of a service, a panic of a function (with its stack in the
// log). The package starts no goroutine and keeps no state.
package tool
