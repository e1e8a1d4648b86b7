// Package internal holds the rooms of laneway. It has no code of its own; docs/architecture.md is the map.
package internal
