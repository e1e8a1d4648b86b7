package config

import (
	"fmt"
	"slices"
	"strings"
)

// ExitCode is the exit status of a process whose configuration must not start (EX_CONFIG of sysexits.h).
const ExitCode = 78

// SourceKind is the layer that a value came from.
type SourceKind string

// The layers, lowest first. Detected is a default that follows from a well-known variable of another program.
const (
	SourceDefault  SourceKind = "default"
	SourceDetected SourceKind = "detected"
	SourceFile     SourceKind = "file"
	SourceEnv      SourceKind = "environment"
	SourceFlag     SourceKind = "flag"
)

// Source is where a value came from: the layer, and the place in it (`laneway.yaml:12`, `LANEWAY_QUEUE_CAP`, `--listen`).
type Source struct {
	Kind  SourceKind `json:"kind"`
	Place string     `json:"place,omitempty"`
}

// String is the place, or the layer where there is no place.
func (s Source) String() string {
	switch {
	case s.Place == "" && s.Kind == "":
		return string(SourceDefault)
	case s.Place == "":
		return string(s.Kind)
	case s.Kind == SourceDetected:
		return "detected from " + s.Place
	default:
		return s.Place
	}
}

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Path of the setting, such as `queue.cap`; "" when the fault is about the whole file.
	Path string
	// Source is where the bad value came from.
	Source Source
	// Message goes on after the path: `must be 1 or more, is 0`. With Whole it is a sentence of its own.
	Message string
	// Whole sentences are shown as they are, without path and place in front.
	Whole bool
}

// String is the place, the path and the message.
func (f Fault) String() string {
	if f.Whole {
		return f.Message
	}
	var head []string
	if f.Source.Place != "" {
		head = append(head, f.Source.Place)
	}
	if f.Path != "" {
		head = append(head, f.Path)
	}
	if len(head) == 0 {
		return f.Message
	}
	return strings.Join(head, ": ") + " " + f.Message
}

// FaultsError is every fault that was found, in the order of the file. It is the error of [Load] and [Preflight].
type FaultsError []Fault

// Error has one line for each fault.
func (f FaultsError) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode is the exit status that the process should end with.
func (f FaultsError) ExitCode() int { return ExitCode }

// Lines are the sentences, one for each fault.
func (f FaultsError) Lines() []string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return lines
}

// touch reports whether one of the faults is about path, a part of it, or the group around it.
func (f FaultsError) touch(path string) bool {
	for _, one := range f {
		if one.Path == path || strings.HasPrefix(path, one.Path+".") || strings.HasPrefix(one.Path, path+".") || strings.HasPrefix(one.Path, path+"[") {
			return true
		}
	}
	return false
}

// err is nil for no faults, so that callers never hold a typed nil.
func (f FaultsError) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// at collects faults of one part of the configuration under its path.
type at struct {
	path   string
	faults *FaultsError
}

func (a at) key(name string) at {
	if a.path == "" {
		return at{path: name, faults: a.faults}
	}
	return at{path: a.path + "." + name, faults: a.faults}
}

func (a at) addf(format string, args ...any) {
	*a.faults = append(*a.faults, Fault{Path: a.path, Message: fmt.Sprintf(format, args...)})
}

func (a at) between(name string, value, low, high int) {
	switch {
	case value < low && high == noUpperBound:
		a.key(name).addf("must be %d or more, is %d", low, value)
	case value < low || value > high:
		a.key(name).addf("must be between %d and %d, is %d", low, high, value)
	}
}

func (a at) durationBetween(name string, value, low, high Duration) {
	if value < low || value > high {
		a.key(name).addf("must be between %s and %s, is %s", low, high, value)
	}
}

func (a at) oneOf(name, value string, known ...string) {
	if slices.Contains(known, value) {
		return
	}
	a.key(name).addf("must be one of %s, is %q", strings.Join(known, ", "), value)
}
