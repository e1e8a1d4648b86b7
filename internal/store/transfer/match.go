package transfer

import (
	"fmt"
	"slices"
	"strings"
)

// pair is one table on both sides. The columns of both are in the order of the source.
type pair struct{ from, to Table }

// pairUp pairs the tables of two sides, each after those that it references, or returns an error wrapping [ErrUnlike] that names every difference.
func pairUp(from, to []Table) ([]pair, error) {
	var faults []string
	pairs := map[string]pair{}
	for _, f := range from {
		i := slices.IndexFunc(to, func(t Table) bool { return t.Name == f.Name })
		if i < 0 {
			faults = append(faults, "the target has no table "+f.Name)
			continue
		}
		p, unlike := match(f, to[i])
		faults = append(faults, unlike...)
		pairs[f.Name] = p
	}
	for _, t := range to {
		if !slices.ContainsFunc(from, func(f Table) bool { return f.Name == t.Name }) {
			faults = append(faults, "the source has no table "+t.Name)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s; nothing was copied", ErrUnlike, strings.Join(faults, ", "))
	}
	return inOrder(pairs)
}

// match pairs the columns of a table, and makes their nullability comparable.
func match(from, to Table) (pair, []string) {
	var faults []string
	columns := make([]Column, 0, len(from.Columns))
	for _, f := range from.Columns {
		i := slices.IndexFunc(to.Columns, func(c Column) bool { return c.Name == f.Name })
		switch {
		case i < 0:
			faults = append(faults, "the target has no column "+from.Name+"."+f.Name)
			continue
		case to.Columns[i].Kind != f.Kind:
			faults = append(faults, fmt.Sprintf("column %s.%s is %s in the source and %s in the target", from.Name, f.Name, f.Kind, to.Columns[i].Kind))
		case to.Columns[i].Nullable != f.Nullable && f.Kind != Text:
			faults = append(faults, fmt.Sprintf("column %s.%s may be NULL on one side only", from.Name, f.Name))
		}
		columns = append(columns, to.Columns[i])
	}
	for _, c := range to.Columns {
		if !slices.ContainsFunc(from.Columns, func(f Column) bool { return f.Name == c.Name }) {
			faults = append(faults, "the source has no column "+to.Name+"."+c.Name)
		}
	}
	if len(from.Key) == 0 || len(to.Key) == 0 {
		faults = append(faults, "table "+from.Name+" has no primary key")
	}
	to.Columns = columns
	return pair{from, to}, faults
}

// inOrder sorts the tables so that each comes after those that it references on either side, and otherwise by name.
func inOrder(pairs map[string]pair) ([]pair, error) {
	var sorted []pair
	done := map[string]bool{}
	for len(sorted) < len(pairs) {
		next := ""
		for name, p := range pairs {
			if !done[name] && (next == "" || name < next) && ready(p, done) {
				next = name
			}
		}
		if next == "" {
			return nil, fmt.Errorf("%w: their references are a circle", ErrUnlike)
		}
		done[next] = true
		sorted = append(sorted, pairs[next])
	}
	return sorted, nil
}

func ready(p pair, done map[string]bool) bool {
	for _, name := range slices.Concat(p.from.References, p.to.References) {
		if !done[name] && name != p.from.Name {
			return false
		}
	}
	return true
}

// loose reports for each column whether NULL and the empty string mean the same, because one side has only one of them.
func (p pair) loose() []bool {
	loose := make([]bool, len(p.from.Columns))
	for i, c := range p.from.Columns {
		loose[i] = c.Nullable != p.to.Columns[i].Nullable
	}
	return loose
}

// translate turns rows of the source into rows of the target.
func (p pair) translate(rows []Row, storable func(string) string) (altered int64) {
	loose := p.loose()
	for _, row := range rows {
		for i, v := range row {
			if text, ok := v.(string); ok {
				clean := storable(text)
				if clean != text {
					altered++
				}
				row[i] = clean
			}
			if !loose[i] {
				continue
			}
			switch {
			case row[i] == nil && !p.to.Columns[i].Nullable:
				row[i] = ""
			case row[i] == "" && p.to.Columns[i].Nullable:
				row[i] = nil
			}
		}
	}
	return altered
}

// keyOf is the key of a row of the source.
func (p pair) keyOf(row Row) []Value {
	key := make([]Value, len(p.from.Key))
	for i, name := range p.from.Key {
		key[i] = row[slices.IndexFunc(p.from.Columns, func(c Column) bool { return c.Name == name })]
	}
	return key
}
