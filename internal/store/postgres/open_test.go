package postgres_test

import (
	"laneway/internal/store/postgres"
	"testing"
)

func open(t testing.TB, cfg postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	return s
}
