package notify

// Config says how to observe. The zero value is the default.
type Config struct {
	// DenyIOUring makes io_uring_setup fail with EPERM. Otherwise its use is
	// reported, and what the requests do is not.
	DenyIOUring bool
}
