package kernel

// Numbers of socket(2), from linux/socket.h and linux/netlink.h.
const (
	familyNetlink = 16
	familyAlg     = 38
)

// localNetlink are the families of netlink whose other end is always the kernel, or another
// process of this host, and that carry none of its data to another host. With the others, a
// process can hand packets to a queue, a radio, or a driver.
var localNetlink = [...]bool{
	0: true, // route: interfaces, addresses and routes, which the C library asks for to resolve a name
	2: true, // usersock
	4: true, // sock_diag
	// not 6, xfrm, which puts connections into tunnels, as AF_KEY does
	7:  true, // selinux
	9:  true, // audit
	10: true, // fib_lookup
	15: true, // kobject_uevent
	21: true, // crypto
}

// Carries reports whether a socket of a family and protocol can carry data to another host, or from one,
// without an event that names the peer. It is for the sockets that have a schema.KindSocket event:
// those whose peers other hooks see have none. docs/bundle.md has the table.
func Carries(family, protocol uint64) bool {
	switch family {
	case familyNetlink:
		return protocol >= uint64(len(localNetlink)) || !localNetlink[protocol]
	case familyAlg:
		return false
	}
	return true
}
