package sqlstore

// Sessions are conversations and their transcripts.
type Sessions struct{ db Engine }
