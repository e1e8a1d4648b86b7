// Package program is what runners that start programs have in common: the sentences for programs that do not start or end with a failure.
package program

import (
	"errors"
	"fmt"
	"syscall"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// exitTemporary is EX_TEMPFAIL of sysexits.h: the program asks for a later attempt.
const exitTemporary = 75

// NotStarted sorts the ways in which a program does not even begin.
func NotStarted(err error) error {
	if errors.Is(err, syscall.E2BIG) {
		return agent.NewError(chat.FailBadRequest,
			"The message is too long to be an argument of this agent's program; send less, or let the program read standard input.", err)
	}
	failed := agent.NewError(chat.FailProgram,
		"The program behind this agent was not found or cannot be started; the operator has to check the agent's command.", err)
	failed.Retryable = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE)
	return failed
}

// Ended is the failure of a program that has ended, with its exit code and its last lines of standard error.
func Ended(exit process.Exit) *agent.Error {
	how := fmt.Sprintf("ended with exit code %d", exit.Code)
	if exit.Signal != "" {
		how = "was ended by the signal " + exit.Signal
	}
	sentence := "The program behind this agent " + how + "."
	if exit.Stderr != "" {
		sentence = "The program behind this agent " + how + ": " + exit.Stderr
	}
	failed := agent.NewError(chat.FailProgram, sentence, nil)
	failed.Retryable = exit.Code == exitTemporary
	return failed
}
