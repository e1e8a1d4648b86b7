package sqlstore

// Store has the operations that are written once. An engine's store embeds it.
type Store struct {
	Access
	Holds
	Questions
	Usage
}

// New returns the operations on an engine.
func New(db Engine) Store {
	return Store{Access: Access{db}, Holds: Holds{db}, Questions: Questions{db}, Usage: Usage{db}}
}
