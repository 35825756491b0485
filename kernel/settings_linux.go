package kernel

import "golang.org/x/sys/unix"

// networkWatch notices changes of the network namespace that it was made in: of interfaces, traffic control, routes and
// rules. It is a socket to which the kernel sends a message about each.
type networkWatch struct{ fd int }

// networkGroups are the groups of such messages, RTNLGRP_* less one.
const networkGroups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_TC-1) |
	1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV4_RULE-1) |
	1<<(unix.RTNLGRP_IPV6_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_NEXTHOP-1)

// watchNetwork begins to watch. Where that fails, everything may have changed.
func watchNetwork() *networkWatch {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return &networkWatch{-1}
	}
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: networkGroups}) != nil {
		unix.Close(fd)
		return &networkWatch{-1}
	}
	return &networkWatch{fd}
}

// changed reports whether there may have been a change so far.
func (w *networkWatch) changed() bool {
	_, _, err := unix.Recvfrom(w.fd, make([]byte, 1), unix.MSG_PEEK)
	return err != unix.EAGAIN
}

func (w *networkWatch) close() {
	unix.Close(w.fd)
	w.fd = -1
}
