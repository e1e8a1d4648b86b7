// Command compose checks Compose files as docker compose does before it starts anything: the schema of the specification, merged and interpolated
// values, and the existence of all named networks, volumes and services. All profiles are active, and no variable is set.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := check(context.Background(), file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func check(ctx context.Context, file string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles([]string{"*"}), cli.WithName("laneway"))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return err
	}
	for name, s := range project.Services {
		for on, how := range s.DependsOn {
			if check := project.Services[on].HealthCheck; how.Condition == "service_healthy" && (check == nil || check.Disable) {
				return fmt.Errorf("service %s waits until %s is healthy, which has no health check", name, on)
			}
		}
	}
	fmt.Printf("%s: %d services\n", file, len(project.Services))
	return nil
}
