package notify

// Config says how to observe. The zero value is the default.
type Config struct {
	// DenyIOUring makes io_uring_setup fail with EPERM. Otherwise the observer reports
	// that io_uring was set up, but not what its requests do.
	DenyIOUring bool
}
