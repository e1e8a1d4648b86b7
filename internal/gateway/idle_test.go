package gateway_test

import (
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

// Not parallel: it counts the memory of the process.
//
//nolint:paralleltest // see above
func TestAnIdleSocketTakesLittleMemory(t *testing.T) {
	const (
		sockets  = 1_000
		warm     = 100 // what the first connections leave in pools is not of the others
		mostHeap = 4 << 10
	)
	mostStacks := int64(3 << 10) // the stack of one goroutine that has not grown has 2 KiB
	if raced() {
		mostStacks *= 2
	}
	addr, _ := benchGateway(t)
	conns := make([]net.Conn, 0, warm+sockets)
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	open := func(n int) {
		for range n {
			conns = append(conns, benchSocket(t, addr).NetConn())
		}
	}
	open(warm)
	heap, stacks := live()
	open(sockets)
	moreHeap, moreStacks := live()
	heap, stacks = (moreHeap-heap)/sockets, (moreStacks-stacks)/sockets
	t.Logf("figure: an idle socket has %d bytes of heap, its client included, and %d bytes of stacks", heap, stacks)
	if heap > mostHeap || stacks > mostStacks {
		t.Errorf("an idle socket takes %d bytes of heap and %d of stacks, more than %d and %d", heap, stacks, mostHeap, mostStacks)
	}
}

// raced reports whether the race detector is in the test, with which every frame on a stack is larger.
func raced() bool {
	build, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(build.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// live is the heap in use and the stacks, in bytes. Pools are empty after the second collection.
func live() (heap, stacks int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}
