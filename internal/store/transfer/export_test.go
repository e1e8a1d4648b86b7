package transfer

// Alike returns an error wrapping [ErrUnlike] when the tables of two sides cannot be copied into each other. It names every difference.
func Alike(a, b []Table) error {
	_, err := pairUp(a, b)
	return err
}
