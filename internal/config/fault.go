package config

import (
	"fmt"
	"slices"
	"strings"
)

// ExitCode is the exit status of a process with an invalid configuration (EX_CONFIG of sysexits.h).
const ExitCode = 78

// SourceKind is the layer of a value.
type SourceKind string

// The layers, lowest first. Detected is a default that follows from a well-known variable of another program.
const (
	SourceDefault  SourceKind = "default"
	SourceDetected SourceKind = "detected"
	SourceFile     SourceKind = "file"
	SourceEnv      SourceKind = "environment"
	SourceFlag     SourceKind = "flag"
)

// Source is the source of a value: the layer, and the place in it (`laneway.yaml:12`, `LANEWAY_QUEUE_CAP`, `--listen`).
type Source struct {
	Kind  SourceKind `json:"kind"`
	Place string     `json:"place,omitempty"`
}

// String returns the place, or the layer when there is no place.
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

// Fault is one error in a configuration.
type Fault struct {
	// Path of the setting, such as `queue.cap`; "" when the fault is about the whole file.
	Path string
	// Source is the source of the invalid value.
	Source Source
	// Message follows the path: `must be 1 or more, is 0`. With Whole it is a complete sentence.
	Message string
	// Whole sentences are shown without path and place.
	Whole bool
}

// String returns the place, the path and the message.
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

// FaultsError has every fault, in the order of the file. It is the error of [Load] and [Preflight].
type FaultsError []Fault

// Error has one line for each fault.
func (f FaultsError) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode returns the exit status of the process.
func (f FaultsError) ExitCode() int { return ExitCode }

// Lines returns one sentence for each fault.
func (f FaultsError) Lines() []string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return lines
}

// touch reports whether a fault concerns path, a part of it, or the group that contains it.
func (f FaultsError) touch(path string) bool {
	for _, one := range f {
		if one.Path == path || strings.HasPrefix(path, one.Path+".") || strings.HasPrefix(one.Path, path+".") || strings.HasPrefix(one.Path, path+"[") {
			return true
		}
	}
	return false
}

// err returns nil when there are no faults, so that callers never have a typed nil.
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
