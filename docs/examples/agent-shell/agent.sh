#!/bin/sh
# An agent in shell, for the runner command: the message is on standard input, and the output is streamed as the answer.
#
#   agents:
#     main: {runner: command, command: [/path/to/agent.sh]}
#
# An exit code other than 0 is a failure; the message to the person has the last lines of standard error. Exit code 75 requests a later attempt.
set -eu

message=$(cat)

case $message in
fail*)
	echo "the disk of the build server is full" >&2
	exit 1
	;;
file*)
	# The files in this directory are sent to the person after the text. The directory exists only during this turn.
	printf 'run %s\n' "$LANEWAY_RUN_ID" >"$LANEWAY_OUTPUT_DIR/run.txt"
	echo "Here is the file."
	;;
*)
	# The key is the same when the turn runs again after a crash: pass it to calls that must not happen twice.
	printf '%s\n' "You wrote: $message"
	printf '%s\n' "This conversation is $LANEWAY_SESSION."
	;;
esac
