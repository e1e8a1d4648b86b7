package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // zones must also be available on an image without zone files
)

const (
	maxZoneName  = 64
	maxZoneHours = 14 // the largest offset from UTC that exists
	fieldTZ      = "schedule.tz"
)

// LoadZone finds a zone by its IANA name, as "UTC" or "Z", or as a fixed offset "+05:30" within 14 hours. An empty name is UTC. Anything else is an
// [*InvalidError]; a zone is never replaced by another one. Names that depend on the machine (Local, localtime) are refused, because replicas would disagree
// about them.
//
// It may read a file, so callers on a hot path should cache the result; see [Compiler].
func LoadZone(name string) (*time.Location, error) {
	switch {
	case name == "", name == "UTC", name == "Z":
		return time.UTC, nil
	case name[0] == '+' || name[0] == '-':
		return fixedZone(name)
	case !zoneNameAllowed(name):
		return nil, unknownZone(name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	return loc, nil
}

// zoneNameAllowed refuses names that depend on the machine, and the trees of zone files that count leap seconds.
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
	return NewInvalid(fieldTZ, InvalidZone, "not a known time zone: %s", Excerpt(name))
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
