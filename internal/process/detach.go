package process

import (
	"fmt"
	"os/exec"
)

// Detach starts a program that outlives this one, such as a browser: this process does not end it and shares no stream with it. env is its whole
// environment as NAME=value. exited receives the result of the program if it ends before this process, and is then closed.
func Detach(argv, env []string, path string) (exited <-chan error, err error) {
	program, err := find(argv[0], path)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: argv, Env: env, SysProcAttr: ownGroup()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	ended := make(chan error, 1)
	go func() { // ends with the program, or with this process
		ended <- cmd.Wait()
		close(ended)
	}()
	return ended, nil
}
