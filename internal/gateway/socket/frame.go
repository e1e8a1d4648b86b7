package socket

import "strconv"

// AppendEvent writes an event frame. payload is JSON; seq 0 = no number, health > 0 adds the state version.
func AppendEvent(dst []byte, event string, payload []byte, seq, health uint64) []byte {
	dst = append(dst, `{"type":"event","event":"`...)
	dst = append(dst, event...)
	dst = append(dst, `","payload":`...)
	dst = append(dst, payload...)
	if seq > 0 {
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, seq, 10)
	}
	if health > 0 {
		dst = append(dst, `,"stateVersion":{"presence":0,"health":`...)
		dst = strconv.AppendUint(dst, health, 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
