// Package channeltest is the contract of channels, and that of the records which a store keeps for channels.
//
// [Run] takes a function that opens a channel together with the provider that it talks to, and holds what the rest of the gateway relies
// on: a message is offered until it is durable and acknowledged only then; a reply arrives whole and in order, or there is a
// [channel.SendError]; an outage ends nothing; Run returns soon after its context; Status and Typing never block. [RunRecords] does the
// same for [channel.Records], so that every store keeps the same bounds.
//
// The tests of Run are in virtual time: each opens its channel inside a synctest bubble, so nothing of it may use real sockets.
package channeltest
