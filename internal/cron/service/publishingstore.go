package service

import (
	"context"

	"laneway/internal/cron"
)

// publishingStore is the store of jobs. After the commit of an operation it publishes the runs that the operation has ended, for every caller: the store
// returns their rows, so the callers need not handle them.
type publishingStore struct {
	cron.JobStore

	events   *Events
	accounts *accounts
	taken    func(ctx context.Context, ended []cron.Run) // sends the alerts about runs whose sessions are taken
}

// PutJob implements [cron.JobStore].
func (s publishingStore) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	res, err := s.JobStore.PutJob(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished, res.Job)
	}
	return res, err
}

// ChangeJob implements [cron.JobStore].
func (s publishingStore) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	res, err := s.JobStore.ChangeJob(ctx, p)
	if err != nil {
		return res, err
	}
	job := res.Old
	if res.Job != nil {
		job = *res.Job
	}
	s.events.Finished(ctx, res.Finished, job)
	return res, nil
}

// Claim implements [cron.JobStore]. A pause that the claim has ended is a change of the job. The launched runs get addresses, so the accounts are read first.
func (s publishingStore) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if err := s.accounts.read(ctx); err != nil {
		return cron.Claimed{}, err
	}
	res, err := s.JobStore.Claim(ctx, p)
	if err != nil {
		return res, err
	}
	s.events.Finished(ctx, res.Finished, res.Jobs...)
	s.taken(ctx, res.Finished)
	for _, j := range res.Resumed {
		s.events.publish(cron.Event{Action: cron.ActionUpdated, Job: j})
	}
	return res, nil
}

// EnqueueRuns implements [cron.JobStore].
func (s publishingStore) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	if err := s.accounts.read(ctx); err != nil {
		return cron.Enqueued{}, err
	}
	res, err := s.JobStore.EnqueueRuns(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished, res.Job)
		s.taken(ctx, res.Finished)
	}
	return res, err
}

// CancelRuns implements [cron.JobStore].
func (s publishingStore) CancelRuns(ctx context.Context, p cron.CancelParams) (cron.Cancelled, error) {
	res, err := s.JobStore.CancelRuns(ctx, p)
	if err == nil {
		s.events.Finished(ctx, res.Finished)
	}
	return res, err
}
