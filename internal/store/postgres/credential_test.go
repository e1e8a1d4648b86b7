package postgres_test

import (
	"testing"

	"laneway/internal/store/storetest"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	storetest.RunCredentials(t, newDatabases(t).harness)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	storetest.RunRecords(t, newDatabases(t).harness)
}
