// Package memory is a store without a disk: the whole port of package store, and that of package cron, over a few maps under one mutex. It
// exists for the tests and examples of other packages and keeps nothing when the process ends.
//
// # Central ideas
//
// One mutex makes every operation atomic: it checks everything first and writes last, so a refusal has no effect. The clock is injected, so
// that leases, debounce windows and retries run in virtual time. Several nodes share one value: each gives its own node id with every call,
// as several processes share one database.
//
// # What it promises
//
// It passes the same suite as the durable engines (package storetest). It starts no goroutine, does no I/O and never waits, so it works
// inside a testing/synctest bubble. It copies parameters and results: a caller that changes its value afterwards changes nothing in the
// store.
//
// # What it does not do
//
// It survives nothing, has no SQL and is not fast with very many sessions in one list call or very many runs in the ledger. It must not be
// linked into the product.
//
// # How it ends
//
// [Store.Close] makes every later call fail with chat.ErrStoreUnavailable.
//
//	st := memory.New(memory.Config{})
//	defer st.Close()
//	err := st.Register(ctx, store.Node{ID: "node-1"})
package memory
