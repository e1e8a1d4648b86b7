package cli

import "laneway/internal/wire"

// schedulerReport is the JSON form of a job in scheduler list, with the names of the other commands instead of those of the method.
type schedulerReport struct {
	Name           string  `json:"name"`
	Schedule       string  `json:"schedule"`
	Timezone       string  `json:"timezone,omitempty"`
	NextRun        *string `json:"nextRun"`
	LastRun        *string `json:"lastRun"`
	LastResult     *string `json:"lastResult"`
	LastDurationMs *int64  `json:"lastDurationMs"`
	RunCount       int64   `json:"runCount"`
	ErrorCount     int64   `json:"errorCount"`
	Running        bool    `json:"running"`
	Paused         bool    `json:"paused"`
}

func schedulerReports(jobs []wire.SchedulerJob) []schedulerReport {
	reports := make([]schedulerReport, len(jobs))
	for i, j := range jobs {
		reports[i] = schedulerReport{
			Name: j.JobName, Schedule: j.CronExpr, Timezone: j.Timezone, NextRun: j.NextRun, LastRun: j.LastRun, LastResult: j.LastResult,
			LastDurationMs: j.LastDurationMs, RunCount: j.RunCount, ErrorCount: j.ErrorCount, Running: j.IsRunning, Paused: j.IsPaused,
		}
	}
	return reports
}
