package store

import "unicode/utf8"

// ReadBytes bounds every read of the port (and of cron.JobStore) that returns rows with text: the stored text columns of the rows of one call have at most this
// many bytes together. A single larger row is returned alone, so a caller that continues after the last row it received always reaches the end. A read may
// therefore return fewer rows than its limit although more exist.
const ReadBytes = 4 << 20

// Budget counts the bytes of the rows of one read.
type Budget struct {
	bytes, used int
	any         bool
}

// NewBudget makes a budget of this many bytes; 0 = [ReadBytes].
func NewBudget(bytes int) *Budget {
	if bytes <= 0 {
		bytes = ReadBytes
	}
	return &Budget{bytes: bytes}
}

// Bytes is how many bytes the budget has.
func (b *Budget) Bytes() int { return b.bytes }

// Take reports whether a row with n bytes of text still belongs to the read. The first row always does. After the first row that does not, no further row does.
func (b *Budget) Take(n int) bool {
	b.used += n
	fits := b.used <= b.bytes || !b.any
	b.any = true
	return fits
}

// FirstChars is what a read with MaxChars n returns of a string: all of it when it has at most n characters, else its first n+1 characters. n 0 = all of it.
func FirstChars(text string, n int) string {
	if n <= 0 || len(text) <= n {
		return text
	}
	rest := text
	for range n + 1 {
		if rest == "" {
			return text
		}
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	return text[:len(text)-len(rest)]
}
