package containers

// LaunchError is the error of a [Runtime]'s Start that an operator must act on: why a replica cannot be started until
// something has been changed.
type LaunchError struct {
	// Message says what is wrong, where, and what to do.
	Message string
	Err     error
}

func (e *LaunchError) Error() string { return e.Message }
func (e *LaunchError) Unwrap() error { return e.Err }

// Permanent implements [Permanent].
func (e *LaunchError) Permanent() bool { return true }

var _ Permanent = (*LaunchError)(nil)
