package declarations

// Refusing returns why no change is made now, or nil: see Refuse.
func (d *Declarations) Refusing() error {
	if why := d.refusing.Load(); why != nil {
		return why
	}
	return nil
}
