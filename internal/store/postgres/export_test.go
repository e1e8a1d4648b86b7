package postgres

import "laneway/internal/cron"

// Doubt lets the store believe that the commit of these launches got no answer.
func (s *Store) Doubt(list []cron.Launched) { s.doubts.add(list) }
