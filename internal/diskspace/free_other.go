//go:build !linux && !darwin

package diskspace

// Free fails: the free space cannot be read on this system.
func Free(string) (uint64, error) { return 0, ErrUnsupported }
