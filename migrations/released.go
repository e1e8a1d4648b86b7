package migrations

import "errors"

// First is the number of the first step. There was no release with an earlier one.
const First = 100

// ErrUnreleased is what to do with a database from before the first release.
var ErrUnreleased = errors.New("the database is from before laneway 0.1.0, and this program can neither use nor change it: " +
	"export what you need with the program that made it (such as laneway cron export), and name a new database with --database")

// CheckReleased returns [ErrUnreleased] when version, the newest applied step of a database, is from before the first release. 0 = the database has no step.
func CheckReleased(version int64) error {
	if version > 0 && version < First {
		return ErrUnreleased
	}
	return nil
}
