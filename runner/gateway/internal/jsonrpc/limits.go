package jsonrpc

import "fmt"

// Default limits of a message.
const (
	DefaultMessage = 4 << 20 // bytes
	DefaultDepth   = 64      // nesting
)

// Limits of a number in a message. Readers of a bundle refuse larger ones: ten bytes such as 1e999999999 can be a
// gigabyte to an exact decoder.
const (
	maxDigits   = 300
	maxExponent = 300
)

// CheckMessage returns why a server with the default limits refuses a message, or nil.
func CheckMessage(b []byte) error {
	if len(b) > DefaultMessage {
		return fmt.Errorf("larger than %d bytes", DefaultMessage)
	}
	return CheckText(b, DefaultDepth)
}

// CheckText limits the nesting and the numbers of a JSON text before anything else reads it. It does not check that
// the text is valid.
func CheckText(b []byte, maxDepth int) error {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c >= '0' && c <= '9':
			start := i
			exponent := -1
			for ; i < len(b) && isNumber(b[i]); i++ {
				if b[i] == 'e' || b[i] == 'E' {
					exponent = 0
				} else if exponent >= 0 && b[i] >= '0' && b[i] <= '9' {
					exponent = min(exponent*10+int(b[i]-'0'), maxExponent+1)
				}
			}
			if i-start > maxDigits || exponent > maxExponent {
				return fmt.Errorf("a number has more than %d digits or an exponent above %d", maxDigits, maxExponent)
			}
			i--
		}
	}
	return nil
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}
