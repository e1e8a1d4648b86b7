package socket

import (
	"encoding/binary"
	"errors"
	"time"
)

// errTooManyFrames ends the reading of a connection that exceeds the limit of empty and control frames per second.
var errTooManyFrames = errors.New("too many control or empty frames")

// Parts of a frame header, with the terms of RFC 6455.
const (
	frameOpcode  = 0x0f
	frameControl = 0x08 // bit of the opcodes of control frames
	longSize     = 126  // two bytes with the size follow
	longestSize  = 127  // eight bytes do
	maxHeader    = 14   // bytes of the longest header
)

// frameCounter parses the frames in the bytes of a client, to count those that the library handles without its caller: control frames, and
// empty continuation frames, of which a message can have any number. Messages are counted where they are received. Used only by the reader.
type frameCounter struct {
	limit    int   // frames per second; 0 = no limit
	skip     int64 // remaining bytes of the frame's content
	header   [maxHeader]byte
	have     int // bytes of the header that were read
	counted  int // frames since began
	began    time.Time
	exceeded bool // permanent: a reader that reads ahead checks it again
}

// take parses bytes that were read, and reports whether the frames are within the limit.
func (f *frameCounter) take(b []byte) bool {
	if f.limit <= 0 {
		return true
	}
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, int64(len(b)))
			f.skip -= n
			b = b[n:]
			continue
		}
		f.header[f.have] = b[0]
		f.have++
		b = b[1:]
		size, whole := f.size()
		if !whole {
			continue
		}
		op := f.header[0] & frameOpcode
		f.have, f.skip = 0, size
		if (op&frameControl != 0 || op == 0 && size == 0) && !f.count() {
			return false
		}
	}
	return true
}

// size returns the size of the content, once the header is complete.
func (f *frameCounter) size() (size int64, whole bool) {
	if f.have < 2 {
		return 0, false
	}
	need, size := 2, int64(f.header[1]&^frameMasked)
	switch size {
	case longSize:
		need += 2
		size = int64(binary.BigEndian.Uint16(f.header[2:]))
	case longestSize:
		need += 8
		size = int64(binary.BigEndian.Uint64(f.header[2:]) &^ (1 << 63)) //nolint:gosec // the highest bit is cut off
	}
	if f.header[1]&frameMasked != 0 {
		need += frameMask
	}
	return size, f.have >= need
}

// count counts a frame.
func (f *frameCounter) count() bool {
	if now := time.Now(); now.Sub(f.began) >= time.Second {
		f.began, f.counted = now, 0
	}
	f.counted++
	f.exceeded = f.counted > f.limit
	return !f.exceeded
}
