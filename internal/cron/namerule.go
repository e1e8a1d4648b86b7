package cron

import (
	"fmt"
	"strings"
)

// NameRule defines the effect of a new job whose owner has jobs of that name. It is applied in the transaction of PutJob. A job with the same key is changed
// under every rule, unless the key is derived: then it counts as a job of that name.
type NameRule string

// The rules. NameNew creates another job.
const (
	NameNew     NameRule = "new"
	NameRefuse  NameRule = "refuse"  // *NameExistsError
	NameReplace NameRule = "replace" // changes the job; *NameExistsError when several exist
)

// NameExistsError refuses a job whose owner has jobs of that name.
type NameExistsError struct {
	Name string
	// IDs are those jobs, oldest first, at most ten.
	IDs []string
}

// Error lists them.
func (e *NameExistsError) Error() string {
	return fmt.Sprintf("jobs with the name %q exist: %s", e.Name, strings.Join(e.IDs, ", "))
}

// MaxNamesakes is how many jobs a [NameExistsError] lists.
const MaxNamesakes = 10

// ByName reports whether jobs with the same name matter.
func (p *PutParams) ByName() bool {
	return p.IfNameExists == NameRefuse || p.IfNameExists == NameReplace
}

// Namesake is the id of the job to change, among the owner's jobs with the name, oldest first; "" when a new job is to be created.
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
