package cron

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// RevisionOf is a digest of the configuration of a job; runs do not change it.
func RevisionOf(j Job) string {
	j.State, j.Revision, j.Invalid = JobState{}, "", ""
	j.CreatedAt, j.UpdatedAt = j.CreatedAt.UTC(), j.CreatedAt.UTC()
	j.StartsAt, j.EndsAt, j.Schedule.At = j.StartsAt.UTC(), j.EndsAt.UTC(), j.Schedule.At.UTC()
	text, err := json.Marshal(j)
	if err != nil {
		return "" // a Job is plain data and can always be encoded
	}
	sum := sha256.Sum256(text)
	return "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}
