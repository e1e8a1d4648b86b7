// Package jobs has the methods of the protocol that are about jobs, and what jobs, their runs and their events look like on the wire.
//
// [Methods] are rows of the method table over a [Backend], which decides everything: the package turns parameters into calls and jobs into the types of
// package wire. [EventView] is the payload of the event cron, [WebhookBody] the body of a webhook.
//
// The standard view of a job has the members that the OpenClaw gateway publishes, the extended view has ours as well. cron.create, cron.delete and
// cron.toggle are the words of GoClaw for the same calls.
//
// The package keeps no state and starts no goroutine.
package jobs
