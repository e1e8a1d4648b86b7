package dispatch

import (
	"slices"
	"sync"

	"laneway/internal/chat"
)

// seqSet is messages that have a slot although the store does not know yet that they run. A number is in it at most once; the turn that
// starts it takes it out.
type seqSet struct {
	mu   sync.Mutex
	bySn map[chat.SessionKey][]int64
}

func (s *seqSet) add(key chat.SessionKey, seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySn == nil {
		s.bySn = map[chat.SessionKey][]int64{}
	}
	have := s.bySn[key]
	for _, q := range seqs {
		if !slices.Contains(have, q) {
			have = append(have, q)
		}
	}
	s.bySn[key] = have
}

func (s *seqSet) remove(key chat.SessionKey, seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.bySn[key], func(q int64) bool { return slices.Contains(seqs, q) })
	if len(left) == 0 {
		delete(s.bySn, key)
		return
	}
	s.bySn[key] = left
}

func (s *seqSet) of(key chat.SessionKey) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bySn[key])
}
