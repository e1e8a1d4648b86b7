package postgres

import "time"

// fromMillis is an instant as the tables keep it; 0 (and NULL, which the queries make 0) is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
