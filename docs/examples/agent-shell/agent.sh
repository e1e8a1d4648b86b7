#!/bin/sh
# An agent in a shell, for the runner command: the message comes on standard input, and what is printed is the answer, as it comes.
#
#   agents:
#     main: {runner: command, command: [/path/to/agent.sh]}
#
# A failure is an exit code other than 0; the last lines of standard error are in the sentence that the person reads. 75 asks for a later attempt.
set -eu

message=$(cat)

case $message in
fail*)
	echo "the disk of the build server is full" >&2
	exit 1
	;;
file*)
	# What lies in this directory is sent to the person behind the text. It is there for this turn alone.
	printf 'run %s\n' "$LANEWAY_RUN_ID" >"$LANEWAY_OUTPUT_DIR/run.txt"
	echo "Here is the file."
	;;
*)
	# The key is the same when the turn runs again after a crash: pass it on to what must not happen twice.
	printf '%s\n' "You wrote: $message"
	printf '%s\n' "This conversation is $LANEWAY_SESSION."
	;;
esac
