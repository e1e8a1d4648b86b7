package sqlstore

// Store combines the operations, which are written once. An engine's store embeds it.
type Store struct {
	Access
	Calls
	Contents
	Cron
	History
	AgentSessions
	Holds
	Inbox
	Inspection
	Journal
	Nodes
	Outbox
	Questions
	Ratios
	Retention
	Search
	Sessions
	SubTurns
	Usage
}

// New returns the operations on an engine.
func New(db Engine) Store {
	jobs := newCron(db)
	return Store{
		Access: Access{db}, AgentSessions: AgentSessions{db}, Calls: Calls{db}, Contents: Contents{db}, Cron: jobs, History: History{db}, Holds: Holds{db, jobs}, Inbox: newInbox(db, jobs),
		Inspection: Inspection{db}, Journal: Journal{db}, Nodes: Nodes{db}, Outbox: Outbox{db, jobs}, Questions: Questions{db}, Ratios: Ratios{db},
		Retention: Retention{db}, Search: Search{db: db}, Sessions: Sessions{db}, SubTurns: SubTurns{db}, Usage: Usage{db},
	}
}
