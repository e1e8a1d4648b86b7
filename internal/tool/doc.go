// Package tool defines what agents may do through the gateway: one table of tools ([Table]), each a row with its name, description, JSON Schema,
// scope and function.
//
// The functions are thin: they read arguments strictly, call the services that chat commands call ([Deps]), and answer in one or two lines of
// text. A tool has no rights of its own. It acts for the owner of the turn, whose principal is in [Turn], and reaches only what belongs to the
// owner: other jobs and sessions do not exist for it.
//
// # Who may act
//
// A tool that creates or sends ([Tool.Acts]) runs without a question only in a turn that its owner's own message caused. In a turn of a group, of
// external text, or after the output of an external tool, a person is asked first ([Turn.Asks]): the call becomes a [Pending] one, its result for the
// model is a sentence, and the turn continues. A call that would fail causes no question ([Tool.Check]). When the person allows it, [Table.Make]
// makes the call for them, under its key. If no person can be asked, and in turns of jobs, it is refused ([Turn.NoActs]), because a job must not make
// jobs. In turns of several principals no tool runs ([Turn.Barred]): each tool reaches what belongs to one principal, and nothing belongs to two. The
// reason is the result, so that the model can pass it on.
//
// Starting a sub-turn neither creates nor sends in this sense: it is allowed in every turn, and the sub-turn has the rights of its parent ([Tasks]).
//
// # Who reads
//
// A turn has an audience ([Turn.Audience]). If others than the owner read its answer, tools return what belongs to the conversation of these readers.
// A call that goes beyond it ([Tool.Beyond]) needs the owner's answer to a question that names the readers, or is refused. [Table.Make] makes it as
// if the owner alone read the result.
//
// # Keys
//
// Every call has a key that stays the same when the turn runs again. A tool creates and sends under this key, so that a call whose result was not
// recorded can be repeated: all tools here are idempotent. The key of a call that starts a sub-turn is the id of the sub-turn.
//
// # Failures
//
// A failure is a result with one sentence, never an error of the turn: wrong arguments, a refusal of a service, a panic of a function (with its stack in the
// log). The package starts no goroutine and keeps no state.
package tool
