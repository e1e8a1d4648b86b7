package sqlstore

// Store has the operations that are written once. An engine's store embeds it.
type Store struct {
	Access
	Calls
	Contents
	Holds
	Inspection
	Journal
	Nodes
	Outbox
	Questions
	Ratios
	Retention
	Sessions
	SubTurns
	Usage
}

// New returns the operations on an engine.
func New(db Engine, jobs Ledger) Store {
	return Store{
		Access: Access{db}, Calls: Calls{db}, Contents: Contents{db}, Holds: Holds{db}, Inspection: Inspection{db}, Journal: Journal{db}, Nodes: Nodes{db},
		Outbox: Outbox{db, jobs}, Questions: Questions{db}, Ratios: Ratios{db}, Retention: Retention{db}, Sessions: Sessions{db}, SubTurns: SubTurns{db},
		Usage: Usage{db},
	}
}
