package schema

import (
	"iter"
	"strings"
)

// Access is how an event touches a thing: a set of the constants below. The empty
// set is a thing that the event only names.
type Access uint8

// Members of [Access].
const (
	AccessRead    Access = 1 << iota // a file opened for reading
	AccessWrite                      // a file opened for writing, written, truncated, or mapped to be written
	AccessCreate                     // a new name, or a file opened with O_CREAT
	AccessRemove                     // a name that goes
	AccessChange                     // mode, owner, times or attributes of a file
	AccessRun                        // a program
	AccessConnect                    // an endpoint that is connected or sent to

	// AccessModify is what leaves files other than they were.
	AccessModify = AccessWrite | AccessCreate | AccessRemove | AccessChange
)

// Touches yields what the event touches, and how: paths of files, the path of a
// program (AccessRun), an endpoint (AccessConnect). That the call may have failed
// does not count: see Failed and Blocked. Names that are empty are left out.
//
// It is the one place that knows this of each kind. What is not there touches
// nothing: a directory that is entered, a local endpoint, bytes on a connection.
func (e *KernelEvent) Touches() iter.Seq2[string, Access] {
	return func(yield func(string, Access) bool) {
		if e.NoFile() {
			return
		}
		value, target := e.touches()
		if e.Value != "" && value != untouched && !yield(e.Value, value) {
			return
		}
		if e.Target != "" && target != untouched {
			yield(e.Target, target)
		}
	}
}

// NoFile reports whether Value names what is no file of any file system: an anonymous inode, as a ring
// of io_uring that is mapped. Earlier builds called that "/[io_uring]".
func (e *KernelEvent) NoFile() bool {
	switch {
	case e.UserMemory:
		return false
	case strings.HasPrefix(e.Value, "anon_inode:["):
		return e.Marks&MarkRelative == 0
	}
	return e.Kind == KindMmapShared && e.Value == "/[io_uring]" && e.Marks&MarkUnreachable != 0
}

// Makes reports whether the name that the event gives to a file did not exist before. False
// is also where that is not known: a rename, an open by a recorder that did not tell.
func (e *KernelEvent) Makes() bool {
	switch e.Kind {
	case KindOpen:
		return e.Created || e.Flags&openCreat != 0 && e.Flags&openExcl != 0
	case KindRename:
		return e.Flags&renameNoReplace != 0
	case KindMkdir, KindMknod, KindSymlink, KindLink: // they fail where it exists
		return true
	}
	return false
}

const renameNoReplace = 1 // linux/fs.h

// Name is one of the event's paths as it is shown: a path in another mount namespace ends
// in a mark, so that nobody takes it for the file that the run's own namespace has there.
func (e *KernelEvent) Name(path string) string {
	if e.Marks&MarkMountNamespace == 0 || path == "" {
		return path
	}
	return path + OtherMounts
}

// OtherMounts is the end of a path in another mount namespace; see [KernelEvent.Name].
const OtherMounts = " (mount_namespace)"

// untouched is no set: the name is none of a thing that is touched.
const untouched Access = 1 << 7

// touches is what the event does to Value and Target.
func (e *KernelEvent) touches() (value, target Access) {
	switch e.Kind {
	case KindOpen:
		return e.openAccess(), untouched
	case KindWrite, KindMmapShared, KindTruncate:
		return AccessWrite, untouched
	case KindMkdir, KindMknod, KindSymlink:
		return AccessCreate, untouched
	case KindLink:
		return 0, AccessCreate
	case KindRename:
		return AccessRemove, AccessCreate
	case KindUnlink, KindRmdir:
		return AccessRemove, untouched
	case KindChmod, KindChown, KindSetxattr, KindRemovexattr, KindUtime:
		return AccessChange, untouched
	case KindPrivileged:
		if e.Call == "cgroup_v1_left" { // the value is a cgroup's name in its hierarchy
			return untouched, untouched
		}
		return 0, untouched
	case KindFileBlocked, KindExecFailed, KindChroot, KindIOUringOp:
		return 0, untouched
	case KindExec:
		return AccessRun, untouched
	case KindConnect, KindSendto, KindConnectBlocked:
		return AccessConnect, untouched
	}
	return untouched, untouched
}

func (e *KernelEvent) openAccess() (a Access) {
	if e.Creates() {
		a |= AccessCreate
	}
	if e.Writes() {
		a |= AccessWrite
	}
	if mode := e.Flags & 3; mode == 0 || mode == openRdWr {
		a |= AccessRead
	}
	return a
}
