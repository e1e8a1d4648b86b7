package sqlstore

import (
	"context"

	"laneway/internal/store"
)

// These are single shared transactions, and which operations they completed. Tests of engines call them to check what a group leaves out.

// AcceptTogether is one transaction of messages.
func (s Inbox) AcceptTogether(ctx context.Context, list []store.AcceptParams) (done []bool, out []store.Accepted, err error) {
	ops := make([]*acceptOp, len(list))
	for i, p := range list {
		if ops[i], err = newAcceptOp(p); err != nil {
			return nil, nil, err
		}
	}
	done, err = s.accepts.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}

// StartTogether is one transaction of starts.
func (s Inbox) StartTogether(ctx context.Context, list []store.StartParams) (done []bool, out []store.Started, err error) {
	ops := make([]*startOp, len(list))
	for i, p := range list {
		ops[i] = &startOp{p: p}
	}
	done, err = s.starts.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}

// FinishTogether is one transaction of finishes.
func (s Inbox) FinishTogether(ctx context.Context, list []store.FinishParams) (done []bool, out []store.Finished, err error) {
	ops := make([]*finishOp, len(list))
	for i, p := range list {
		ops[i] = &finishOp{p: p}
	}
	done, err = s.finishes.group.write(ctx, ops)
	for _, o := range ops {
		out = append(out, o.out)
	}
	return done, out, err
}
