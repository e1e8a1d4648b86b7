package process

import (
	"fmt"
	"os/exec"
)

// Detach starts a program that outlives this one, such as a browser: nothing here ends it, and it reads and writes nothing of this process. env is its whole
// environment as NAME=value. exited gets the result of the program when it ends while this process lives, and is then closed.
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
