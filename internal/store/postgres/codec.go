package postgres

import "time"

// fromMillis is a stored instant; 0 (and NULL, which the queries turn into 0) is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
