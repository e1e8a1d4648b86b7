package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"laneway/internal/cron/schedule"
)

// versionReport is what `laneway version --json` prints.
type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Zones   string `json:"zones"` // the release of the time zone rules
}

// versionOf returns the version of this program for people and clients; an empty part is taken from the build info.
func versionOf(version, commit string) versionReport {
	r := versionReport{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Zones: schedule.ZoneRelease()}
	build, ok := debug.ReadBuildInfo()
	if ok && r.Commit == "" {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				r.Commit = s.Value
			}
		}
	}
	if r.Version == "" {
		r.Version = "0.0.0-dev"
	}
	return r
}

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*versionCmd) Help() string { return "Example:\n\n    laneway version --json" }

// Run prints the version.
func (c *versionCmd) Run(env *environment) error {
	r := env.version
	if c.JSON {
		return printJSON(env.stdout, r)
	}
	line := "laneway " + r.Version
	if r.Commit != "" {
		line += " (" + r.Commit[:min(12, len(r.Commit))] + ")"
	}
	_, err := fmt.Fprintf(env.stdout, "%s %s %s/%s zones %s\n", line, r.Go, r.OS, r.Arch, r.Zones)
	return err
}
