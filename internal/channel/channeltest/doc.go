// Package channeltest is the contract of channels, and the contract of the records that a store keeps for channels.
//
// [Run] takes a function that opens a channel together with the provider that it talks to, and checks what the rest of the gateway
// relies on: a message is offered until it is durable and acknowledged only then; a reply arrives whole and in order, or Send returns a
// [channel.SendError]; an outage does not end Run; Run returns shortly after the end of its context; Status and Typing never block.
// [RunRecords] does the same for [channel.Records], so that every store keeps the same bounds.
//
// The tests of Run are in virtual time: each opens its channel inside a synctest bubble, so it must not use real sockets.
package channeltest
