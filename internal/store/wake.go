package store

// Waker is what a store shared by several processes can do beyond [Store]: hints between them.
type Waker interface {
	Notify(node string)
	Wakeups(node string) <-chan struct{}
}
