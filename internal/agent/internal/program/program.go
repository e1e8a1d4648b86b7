// Package program is the common part of runners that start programs: working directories, stored sessions, and the errors of programs that do not
// start or that fail.
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

// NotStarted classifies the errors with which a program fails to start.
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

// Ended returns the failure of a program that has ended, with its exit code and its last lines of standard error.
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
