//go:build !linux && !darwin

package diskspace

// Free is not known here.
func Free(string) (uint64, error) { return 0, ErrUnsupported }
