package audittest

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fields of struct audit_status (linux/audit.h), and the bits that say which are set.
const (
	fields       = 10
	fieldEnabled = 1
	fieldRate    = 4
	fieldLimit   = 5
	maskEnabled  = 1  // AUDIT_STATUS_ENABLED
	maskRate     = 8  // AUDIT_STATUS_RATE_LIMIT
	maskLimit    = 16 // AUDIT_STATUS_BACKLOG_LIMIT
)

// On switches the audit on until the test ends. Meanwhile, tests of other binaries wait in
// On. It makes the backlog large, so that a busy machine loses no record.
func On(t *testing.T) {
	t.Helper()
	lock, err := os.Open("/sys/kernel") // a lock on a directory leaves nothing behind
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	was, err := ask(unix.AUDIT_GET, nil)
	if err != nil {
		t.Skipf("the kernel's audit cannot be switched on: %v", err)
	}
	if was[fieldEnabled] == 1 {
		return
	}
	if err := set(map[int]uint32{fieldEnabled: 1, fieldLimit: max(was[fieldLimit], 8192)}); err != nil {
		t.Skipf("the kernel's audit cannot be switched on: %v", err)
	}
	t.Cleanup(func() {
		if err := set(map[int]uint32{fieldEnabled: was[fieldEnabled], fieldLimit: was[fieldLimit]}); err != nil {
			t.Errorf("the audit is not as it was: %v", err)
		}
	})
}

// LoseRecords makes the audit lose all records but one a second, until the test ends. Call On before.
func LoseRecords(t *testing.T) {
	t.Helper()
	was, err := ask(unix.AUDIT_GET, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(map[int]uint32{fieldRate: was[fieldRate]}); err != nil {
			t.Errorf("the audit is not as it was: %v", err)
		}
	})
	if err := set(map[int]uint32{fieldRate: 1}); err != nil {
		t.Fatal(err)
	}
}

// masks are the bits of the fields that can be set.
var masks = map[int]uint32{fieldEnabled: maskEnabled, fieldRate: maskRate, fieldLimit: maskLimit}

func set(values map[int]uint32) error {
	var st [fields]uint32
	for field, v := range values {
		st[0] |= masks[field]
		st[field] = v
	}
	_, err := ask(unix.AUDIT_SET, st[:])
	return err
}

// ask sends a request. It returns the status if the kernel's answer has one.
func ask(kind uint16, body []uint32) (st [fields]uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	header := unix.NlMsghdr{Len: uint32(16 + 4*len(body)), Type: kind, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK}
	packet := append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(&header)), 16)...)
	for _, v := range body {
		packet = binary.NativeEndian.AppendUint32(packet, v)
	}
	if err := unix.Sendto(fd, packet, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return st, err
	}
	buf := make([]byte, 4096)
	acknowledged, answered := false, kind == unix.AUDIT_SET
	for !acknowledged || !answered {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return st, err
		}
		switch binary.NativeEndian.Uint16(buf[4:]) {
		case unix.NLMSG_ERROR:
			if errno := int32(binary.NativeEndian.Uint32(buf[16:])); errno != 0 {
				return st, unix.Errno(-errno)
			}
			acknowledged = true
		case unix.AUDIT_GET:
			for i := range min(fields, (n-16)/4) {
				st[i] = binary.NativeEndian.Uint32(buf[16+4*i:])
			}
			answered = true
		}
	}
	return st, nil
}
