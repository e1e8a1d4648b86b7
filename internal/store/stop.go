package store

import (
	"laneway/internal/chat"
)

// Meets selects what a stop ends: running runs and waiting messages of the session, both given oldest first. named is the run that its id names.
func (p *StopParams) Meets(running []Run, waiting []Waiting, named string) (runs []Run, messages []Waiting, err error) {
	switch p.Scope {
	case StopAll:
		return running, waiting, nil
	case StopRun:
		for _, r := range running {
			if r.ID == named {
				runs = append(runs, r)
			}
		}
		for _, m := range waiting {
			if m.MessageID == p.MessageID {
				messages = append(messages, m)
			}
		}
		return runs, messages, nil
	case StopOne:
		for _, r := range running {
			if r.StopBy == "" {
				return []Run{r}, nil, nil
			}
		}
		return nil, waiting[:min(len(waiting), 1)], nil
	default:
		return nil, nil, chat.Errorf(chat.CodeInvalid, "unknown stop scope %q: want one, run or all", p.Scope)
	}
}
