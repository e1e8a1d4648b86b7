package cron

import (
	"fmt"
	"strings"
)

// NameRule says what a new job means when its owner has jobs of that name. It is decided in the transaction of PutJob. A job that has the key itself is
// changed under every rule, unless the key is derived: then it is a job of that name like others.
type NameRule string

// The rules. NameNew makes another job.
const (
	NameNew     NameRule = "new"
	NameRefuse  NameRule = "refuse"  // *NameExistsError
	NameReplace NameRule = "replace" // changes the job; *NameExistsError when there are several
)

// NameExistsError refuses a job whose owner has jobs of that name.
type NameExistsError struct {
	Name string
	// IDs are those jobs, oldest first, at most ten.
	IDs []string
}

// Error names them.
func (e *NameExistsError) Error() string {
	return fmt.Sprintf("jobs with the name %q exist: %s", e.Name, strings.Join(e.IDs, ", "))
}

// MaxNamesakes is how many jobs a [NameExistsError] names.
const MaxNamesakes = 10

// ByName reports whether the jobs of the same name decide.
func (p *PutParams) ByName() bool {
	return p.IfNameExists == NameRefuse || p.IfNameExists == NameReplace
}

// Namesake is the id of the job to change, of those of the owner that have the name, oldest first; "" = there is none.
func (p *PutParams) Namesake(ids []string) (string, error) {
	switch {
	case len(ids) == 0:
		return "", nil
	case len(ids) == 1 && p.IfNameExists == NameReplace:
		return ids[0], nil
	default:
		return "", &NameExistsError{Name: p.Name, IDs: ids[:min(len(ids), MaxNamesakes)]}
	}
}
