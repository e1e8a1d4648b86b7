package postgres_test

import (
	"testing"

	"laneway/internal/store/storetest"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	storetest.RunCredentials(t, newDatabases(t).harness)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.RunRecords(t, newDatabases(t).harness)
}
