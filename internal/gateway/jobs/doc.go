// Package jobs has the methods of the protocol for jobs, and the protocol's form of jobs, their runs and their events.
//
// [Methods] returns rows of the method table for a [Backend], which makes all decisions: the package converts parameters to calls and jobs
// to the types of package wire. [EventView] is the payload of the event cron, [WebhookBody] the body of a webhook.
//
// The standard view of a job has the members that the OpenClaw gateway publishes, the extended view also has those of laneway. cron.create,
// cron.delete and cron.toggle are GoClaw's names for the same calls.
//
// The package keeps no state and starts no goroutine.
package jobs
