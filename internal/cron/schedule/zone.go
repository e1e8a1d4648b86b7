package schedule

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"laneway/internal/words"
)

//go:embed zones.zip
var zonesZip []byte

//go:embed zones.txt
var zonesText string

const (
	maxZoneName  = 64
	maxZoneHours = 14 // the largest offset from UTC that exists
	fieldTZ      = "schedule.tz"
)

// LoadZone finds a zone by its IANA name, as "UTC" or "Z", or as a fixed offset "+05:30" within 14
// hours. An empty name is UTC. Anything else is an [*InvalidError]; a zone is never replaced by
// another one. Names that depend on the machine (Local, localtime) are refused, because replicas
// would disagree about them.
//
// The rules are those that scripts/zones has compiled into the program, or those of the directory
// or zip file that the variable ZONEINFO names, as in package time. The database of the host is
// never read: hosts of one gateway have different releases, and one of last year moves jobs by an
// hour. No other code of the program loads a zone.
//
// It decompresses a file, so callers on a hot path should cache the result; see [Compiler].
func LoadZone(name string) (*time.Location, error) { return currentZones().load(name) }

func (z zoneRules) load(name string) (*time.Location, error) {
	switch {
	case name == "", name == "UTC", name == "Z":
		return time.UTC, nil
	case name[0] == '+' || name[0] == '-':
		return fixedZone(name)
	case !zoneNameAllowed(name):
		return nil, unknownZone(name)
	}
	data, err := z.file(name)
	switch {
	case errors.Is(err, errNoRules):
		return nil, NewInvalid(fieldTZ, InvalidZone, "%s cannot be looked up: %s", name, errNoRules)
	case err != nil:
		return nil, unknownZone(name)
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, unknownZone(name)
	}
	return loc, nil
}

// ZoneRelease names the release of the rules that [LoadZone] reads, such as 2026f. The rules that
// ZONEINFO names have the release of their file tzdata.zi or +VERSION, and otherwise "unknown".
func ZoneRelease() string { return currentZones().release() }

// EmbeddedRelease names the release of the rules that are compiled into the program.
func EmbeddedRelease() string {
	release, _, _ := strings.Cut(zonesText, " ")
	return release
}

// UnknownRelease is the release of rules that do not name theirs.
const UnknownRelease = "unknown"

// Newer reports whether a release of the rules is newer than another one. It is not known to be
// newer when one of them is unknown.
func Newer(release, than string) bool {
	return release != UnknownRelease && than != UnknownRelease && than != "" && release > than
}

// CheckZones reports that the rules which the variable ZONEINFO names do not exist.
func CheckZones() error { return currentZones().check() }

func (z zoneRules) check() error {
	if z.path == "" {
		return nil
	}
	if _, err := os.Stat(z.path); err != nil {
		return errNoRules
	}
	return nil
}

func (z zoneRules) release() string {
	if own := z.path; own != "" {
		for file, before := range map[string]string{"tzdata.zi": "# version ", "+VERSION": ""} {
			data, err := readZone(own, file)
			line, _, _ := strings.Cut(string(data), "\n")
			if release, ok := strings.CutPrefix(line, before); err == nil && ok && release != "" {
				return strings.TrimSpace(release)
			}
		}
		return UnknownRelease
	}
	return EmbeddedRelease()
}

// zoneRules are the rules of a directory or zip file; without a path, those of the program.
type zoneRules struct{ path string }

// errNoRules: the variable names nothing. All zones of the host would be unknown, which is not what
// the person who names one has to correct.
var errNoRules = errors.New("the variable ZONEINFO of the gateway names a file or directory that does not exist")

func currentZones() zoneRules {
	return zoneRules{path: os.Getenv("ZONEINFO")} //nolint:forbidigo // the variable of package time; only this package reads zones
}

// file returns the compiled rules of a zone.
func (z zoneRules) file(name string) ([]byte, error) {
	if z.path != "" {
		if err := z.check(); err != nil {
			return nil, err
		}
		return readZone(z.path, name)
	}
	r, err := embedded()
	if err != nil {
		return nil, err
	}
	return fromZip(r, name)
}

// embedded is the index of the embedded zones, which is read once: reading it takes longer than a
// zone.
var embedded = sync.OnceValues(func() (*zip.Reader, error) { //nolint:gochecknoglobals // the index of an embedded file
	r, err := zip.NewReader(bytes.NewReader(zonesZip), int64(len(zonesZip)))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded zones: %w", err)
	}
	return r, nil
})

// readZone reads a file of a directory or a zip file.
func readZone(path, name string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return os.ReadFile(filepath.Join(path, filepath.FromSlash(name))) // the operator names the directory, and a name has no dots
	}
	r, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	data, err := fromZip(&r.Reader, name)
	return data, errors.Join(err, r.Close())
}

func fromZip(r *zip.Reader, name string) ([]byte, error) {
	for _, f := range r.File {
		if f.Name == name {
			data, err := f.Open()
			if err != nil {
				return nil, err
			}
			out, err := io.ReadAll(data)
			return out, errors.Join(err, data.Close())
		}
	}
	return nil, fs.ErrNotExist
}

// embeddedZones lists the names of the embedded zones.
func embeddedZones() (names []string) {
	if r, err := embedded(); err == nil {
		for _, f := range r.File {
			names = append(names, f.Name)
		}
	}
	return names
}

// zoneNameAllowed refuses names that depend on the machine, and the trees of zone files that count
// leap seconds.
func zoneNameAllowed(name string) bool {
	switch name {
	case "Local", "localtime", "posixrules", "Factory":
		return false
	}
	if len(name) > maxZoneName || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/") {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_+-/", r)
	}) < 0
}

func fixedZone(name string) (*time.Location, error) {
	if len(name) != 6 || name[3] != ':' {
		return nil, NewInvalid(fieldTZ, InvalidZone, "an offset is written +HH:MM or -HH:MM, not %s", Excerpt(name))
	}
	hours, okHours := twoDigits(name[1:3])
	minutes, okMinutes := twoDigits(name[4:6])
	if !okHours || !okMinutes {
		return nil, NewInvalid(fieldTZ, InvalidZone, "an offset is written +HH:MM or -HH:MM, not %s", Excerpt(name))
	}
	if minutes > 59 || hours*60+minutes > maxZoneHours*60 {
		return nil, NewInvalid(fieldTZ, InvalidZone, "offset %s is out of range -14:00 to +14:00", name)
	}
	seconds := (hours*60 + minutes) * 60
	if name[0] == '-' {
		seconds = -seconds
	}
	return time.FixedZone(name, seconds), nil
}

func twoDigits(s string) (int, bool) {
	if len(s) != 2 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
		return 0, false
	}
	return int(s[0]-'0')*10 + int(s[1]-'0'), true
}

func unknownZone(name string) error {
	for _, zone := range embeddedZones() { // Berlin, New York
		if city := zone[strings.LastIndex(zone, "/")+1:]; strings.EqualFold(city, strings.ReplaceAll(name, " ", "_")) {
			return NewInvalid(fieldTZ, InvalidZone, "not a known time zone: %s; did you mean %s?", Excerpt(name), zone)
		}
	}
	if meant := words.Meant(name, embeddedZones()); meant != "" {
		return NewInvalid(fieldTZ, InvalidZone, "not a known time zone: %s%s", Excerpt(name), meant)
	}
	return NewInvalid(fieldTZ, InvalidZone, "not a known time zone: %s; write a name such as Europe/Berlin or an offset such as +02:00", Excerpt(name))
}

// Excerpt makes untrusted text safe and short enough for a message.
func Excerpt(s string) string {
	const most = 40
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(clean) > most {
		return clean[:most] + "..."
	}
	return clean
}
