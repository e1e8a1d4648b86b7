package rpc

import (
	"fmt"
	"maps"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/wire"
)

// Table has rows by the names of their methods.
type Table map[string]*Method

// NewTable returns a table. It panics on a duplicate name or a row without a scope: a programming error that any test finds.
func NewTable(rows ...[]*Method) Table {
	table := Table{}
	for _, m := range slices.Concat(rows...) {
		if table[m.Name] != nil || chat.ScopeLevel(m.Scope) == 0 {
			panic(fmt.Sprintf("method table: %s is there twice or has no scope", m.Name))
		}
		table[m.Name] = m
	}
	return table
}

// Names lists all methods that a client can call, connect included.
func (t Table) Names() []string {
	names := append(slices.Collect(maps.Keys(t)), wire.MethodConnect)
	slices.Sort(names)
	return names
}
