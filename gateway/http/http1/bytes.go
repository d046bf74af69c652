package http1

// class says of each byte what it may be part of.
var class = func() (t [256]uint8) {
	for c := range t {
		switch c := byte(c); {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			t[c] = token | host
		case c == '\t':
		case c < ' ', c == 0x7f:
			t[c] = control
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") { // RFC 9110, 5.6.2
		t[c] |= token
	}
	for _, c := range []byte("-._~!$&'()*+,;=%:[]") { // RFC 3986, 3.2.2 and 3.2.3, without user information
		t[c] |= host
	}
	return t
}()

const (
	token uint8 = 1 << iota
	host
	control
)

func isControl(c byte) bool { return class[c]&control != 0 }

func isDigit(c byte) bool { return c-'0' <= 9 }

func isToken(b []byte) bool {
	for _, c := range b {
		if class[c]&token == 0 {
			return false
		}
	}
	return len(b) > 0
}

func isHost(b []byte) bool {
	for _, c := range b {
		if class[c]&host == 0 {
			return false
		}
	}
	return true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case isDigit(c):
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10, true
	}
	return 0, false
}

// equalFold compares with a text in lower case.
func equalFold(b []byte, lower string) bool { return len(b) == len(lower) && hasPrefixFold(b, lower) }

func hasPrefixFold(b []byte, lower string) bool {
	if len(b) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
