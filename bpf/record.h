/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the programs and package kernel share: the record on the ring, the
 * counters, the coalescing slots and the table of system calls. The Go side's
 * copies are checked against this file's BTF by TestLayout. */
#ifndef ASSAY_RECORD_H
#define ASSAY_RECORD_H

#include "kinds.h"

/* Kinds of records that are no line of a layer, in the order of package kernel. */
enum {
	K_MOVED_V1 = 240, K_KERNEL_EXEC, K_UNMODELLED, K_EXEC_ARGS, K_EXEC_ENV, K_REPEAT, K_URING_DONE,
	K_COUNT = 256,
};

/* Hooks, in the order of kernel.hooks. One cell of counters for each, per CPU. */
enum hook {
	H_EXEC, H_FORK, H_EXIT, H_MOVED,
	H_OPEN, H_EXEC_FAILED, H_WRITE, H_MMAP, H_RENAME, H_UNLINK, H_LINK, H_MKDIR, H_TRUNCATE, H_ATTR, H_CHDIR,
	H_SOCKET, H_PRIVILEGE, H_IOURING,
	H_CONNECT4, H_CONNECT6, H_SENDMSG4, H_SENDMSG6, H_BIND4, H_BIND6, H_TCP, H_SKB_IN, H_SKB_OUT,
	H_EXEC_ARGS, H_FLUSH, H_UNMODELLED, H_SIGNAL,
	H_COUNT,
	H_CELLS = 64, /* cells per CPU: a power of two, so that an index is a shift */
	H_SERIALS = 56, /* the last cells count the records of each stream and lane */
};

/* Each session has two rings, so that what happens to files cannot take the room
 * of what is rare and matters most. */
enum lane {
	L_FILES,
	L_URGENT, /* exec, connect, the life of processes, privileged calls */
	L_COUNT,
};

/* Who made a record. Its serial numbers those of one stream, lane and CPU from 1
 * without a gap; those of ST_NET number the session's, dropped ones included. */
enum stream { ST_TASK, ST_SYSCALL, ST_NET, ST_SIGNAL };

/* record.bits */
enum {
	B_TRUNCATED = 1 << 0,   /* a path or payload was cut */
	B_FAILED_READ = 1 << 1, /* some field is missing */
	B_WALKED = 1 << 2,      /* seg 0 is a kernel walk, leaf first */
	B_DELETED = 1 << 3,
	B_UNREACHABLE = 1 << 4,
	B_ARGS_CUT = 1 << 5,
	B_ENV_CUT = 1 << 6,
	B_THREAD = 1 << 7,
	B_NO_RESULT = 1 << 8,
	B_INGRESS = 1 << 9,
	B_FROM_USER = 1 << 10,
	B_SLOT = 1 << 11, /* slot holds this record's key: repeats may follow */
	B_BASE_UNREACHABLE = 1 << 12, /* a base directory is deleted or unreachable */
	B_IA32 = 1 << 13,
	B_ADDRESS_FIRST = 1 << 15, /* S_ENV comes before S_NAME */
	B_BASE_CUT = 1 << 16, /* a base directory's path was cut */
	B_PENDING = 1 << 18, /* an io_uring request's: K_URING_DONE will tell how it ended */
	B_URING = 1 << 19,   /* by io_uring rather than by a system call */
	B_QUIET = 1 << 20,   /* B_PENDING, and nothing will tell if it succeeds */
	B_CLAIMED = 1 << 21, /* another could have changed what was read from user memory */
	B_CREATED = 1 << 22, /* an open made the file */
	B_COPIED = 1 << 23,  /* the names are the kernel's copies */
	B_CORE = 1 << 24,    /* the kernel wrote the file itself, as the process's core dump */
	B_UNRESOLVED = 1 << 17, /* a name's directory could not be told from the kernel's objects */
	B_NO_BASE = 1 << 14, /* a directory that a name is relative to could not be found */
};

/* Segments: variable data behind the record, in this order. */
enum {
	S_PATH,  /* walk (B_WALKED), or what of a name remains below S_BASE; exec: walk of the image */
	S_BASE,  /* walk of the directory that S_PATH is relative to; exec: cwd */
	S_PATH2, /* the same of a second name; exec: filename */
	S_BASE2, /* walk for S_PATH2; exec: interpreter, then, behind a NUL, a walk of the loader, if there is one */
	S_NAME,  /* xattr or memfd name, sun_path, payload; exec: argv */
	S_ENV,   /* exec: environment names; network: struct address; names: their ways, see WAY_* */
	S_TOOL,  /* exec: the tool call's id; names: the first as given, where S_PATH is not it */
	S_TRACE, /* exec: the trace's parent; names: the second */
	S_COUNT,
};

struct record {
	u64 t;      /* CLOCK_BOOTTIME */
	u64 start;  /* the process leader's start_boottime */
	u64 cgroup; /* cgroup2 id */
	u64 id;
	u32 tgid, tid, ppid;
	s32 ret;
	u16 kind, hook;
	u32 bits;
	u64 arg[6]; /* arguments of the system call that it has, or what the kind says; else 0 */
	u64 ino;
	u32 dev, mode;
	u16 seg[S_COUNT]; /* lengths */
	u32 slot;
	u16 nr, cpu;
	u32 serial;
	u16 stream, place; /* enum place, of a file that was opened to write or written */
};

/* The first word: the call began at most this many nanoseconds before the event (all ones:
 * not known). Then a word for each directory entry on the way of the call's names, which
 * tells it from others: those that the call went through, and, with WAY_CHANGED, those that
 * it made lead elsewhere. WAY_OPEN stands for what others than the host's tasks can change. */
#define WAY_OPEN 0
#define WAY_CHANGED 1
#define WAYS 128 /* of one call */

/* What the kernel takes orders from, by the file and not by where it is mounted. The file's
 * names in its file system are in S_NAME, leaf first; arg[5] of an open is the process that
 * a file of PL_PROC is about, 0 for none. Before the names of PL_CONTROL, which is in a file
 * system that keeps no files and has no place of its own, are four bytes of what its type
 * is; of PL_DEVICE there are only four, its number. */
enum place { PL_NONE, PL_PROC, PL_SYSFS, PL_BINFMT, PL_CGROUP, PL_TUN, PL_MEMORY, PL_DEVICE, PL_CONTROL };

struct counter {
	u64 fired, filtered, coalesced, emitted, dropped, failed_reads;
	u64 pad[2];
};

/* A session, as user space registers it. Its number is the index in the maps of
 * maps; with the serial above, it is a handle that is never used twice. */
struct session {
	u64 cgroup; /* the directory's cgroup2 id, 0 when the place is free */
	u32 handle;
	u32 wake[L_COUNT]; /* wake the reader when so many bytes wait in a ring */
	u32 deeper;        /* this session is nested too deep to be seen in full */
	/* Counts the session's renames, mounts and removals of directories: pointers
	 * to dentries seen before may now mean another path. Part of every key. */
	u64 generation;
	/* A rename through io_uring was asked for: when it happens is not seen, so
	 * from then on no repeat is counted beyond a timer tick. */
	u64 unsettled;
	u64 last_wake;
	u64 net_ids;
	u64 left; /* CLOCK_BOOTTIME at which the session that had this place before ended */
	u64 asleep; /* the reader waits for the next record, however small it is */
	u64 passed; /* descriptors went over a unix socket: see enum passed */
	u64 asked;  /* the run asked that a process be told of files by signals */
	u64 several; /* it has had more than one task */
	u64 control; /* cookie of the socket over which assay-run talks to its helper in the session; 0: there is none */
	u64 pad[3];
};

enum passed {
	PASSED_OUT = 1,
	PASSED_IN = 2,
	CAME_FROM_OUTSIDE = 4,
	WENT_OUTSIDE = 8,
	CAME_UNSEEN = 16, /* and what it can do is not seen where it is used */
	END_OUTSIDE = 32, /* a unix socket went outside: who has it can send over its other end */
	PACKET_OPTIONS = 64, /* no descriptor, but packets with options went out, which can make them go another way */
	ASKED_BESIDE = 128, /* none, but the kernel was asked for what is not modelled, beside any call that tells of it */
};

#define SESSION_BITS 10 /* of a handle */
#define DEPTH 4         /* sessions that one process can be in */

#define KEY_WORDS 8

/* The coalescing cache of one CPU: a part for each lane, and one for signals, which can interrupt the rest. All are
 * powers of two. */
#define FILE_SLOTS 2048
#define URGENT_SLOTS 512
#define SIGNAL_SLOTS 64
#define CPU_SLOTS (FILE_SLOTS + URGENT_SLOTS + SIGNAL_SLOTS)

/* One place of the coalescing cache. A repeat of the event in key is only
 * counted here, until the place is needed or the run ends. */
struct slot {
	u64 key[KEY_WORDS];
	u64 id; /* of the first occurrence's record, 0 when free */
	u64 count, first, last;
	u64 bytes, bytes_in;
	u64 t0;   /* the first occurrence's time */
	u64 tick; /* jiffies at last, which is set once a tick */
};

/* How to treat a system call. Argument indexes count from 0; NOARG is none. */
#define NOARG 7
#define ALL_ARGS 63
struct syscall {
	u8 prog, kind, hook;
	u8 fd;         /* argument that is the file descriptor the call is about */
	u8 dfd, path;  /* directory descriptor and string; no dfd means cwd */
	u8 dfd2, path2;
	u8 name;       /* further string: xattr name, file system type */
	u8 keys;       /* bit mask of arguments that tell repeats apart */
	u8 flags, mode;
	u8 follow; /* enum follow */
	u8 recorded; /* bit mask of arguments that a record has; the others are zero there */
	u8 account;  /* enum account */
	u8 table;    /* enum table, of a call that does many things: what it does has the account */
};

/* What is known of a call, or of one of its operations. What has no row is A_UNLISTED. */
enum account { A_UNLISTED, A_OWN, A_RECORDED, A_OPEN };

/* What has a table of operations. */
enum table {
	T_NONE, T_FCNTL, T_IOCTL, T_PRCTL, T_SETSOCKOPT, T_URING_REGISTER, T_SYSLOG, T_PERSONALITY,
	/* Operations of no one call. */
	T_CLONE, T_CONTROL, T_NETLINK, T_HIERARCHY,
	T_COUNT,
};

#define WORD_BITS 64

/* What a descriptor is that an ioctl is of. */
enum object_kind { OK_ANY, OK_FILE, OK_FIFO, OK_SOCKET, OK_TERMINAL, OK_CHARACTER, OK_BLOCK, OK_OTHER };

/* A row of the tables of operations, in the order of key: see operation in model.h. */
struct operation {
	u64 key;
	u8 account, pad[7];
};

#define OPERATIONS 1024 /* a power of two; those behind the last have the largest key */

/* Whether a symbolic link that the first name ends in is followed. */
enum follow {
	FOLLOW_NEVER,
	FOLLOW_ALWAYS,
	FOLLOW_UNLESS, /* AT_SYMLINK_NOFOLLOW */
	FOLLOW_IF,     /* AT_SYMLINK_FOLLOW */
	FOLLOW_UMOUNT, /* unless UMOUNT_NOFOLLOW */
};

enum prog {
	P_NONE, P_OPEN, P_PATH, P_FD, P_CWD, P_WRITE, P_ARGS, P_SOCKET, P_MMAP, P_CLONE, P_PACKED, P_AIO, P_URING,
	P_IOCTL, P_FAMILY, P_BPF, P_RECEIVE, P_PROCESS, P_FCNTL, P_READ,
	P_WAIT, /* waits for other tasks; only its end is noted */
	P_OWN, /* makes no record, whatever it does */
	P_OTHER, /* has no record of its own: see on_unmodelled */
	P_IPC, /* exchanges data with other tasks, and may wait for them */
	P_COUNT,
};

/* BPF objects, from bit 32 of arg[1] of K_BPF, above their id. From bit 40:
 * whether the caller can change it. */
enum object { O_NONE, O_MAP, O_PROG, O_LINK };

/* Behind a network record, in S_ENV. Ports in host order. */
struct address {
	u16 family, proto, type, pad;
	u16 lport, rport;
	u8 local[16], remote[16];
	u32 pad2; /* to a multiple of 8 */
};

/* Traffic with one remote endpoint, the key and value of a map that user space
 * reads at the end. */
struct endpoint {
	u16 family, proto, port, pad;
	u8 addr[16];
};

struct traffic {
	u64 out, in; /* bytes of payload */
	u64 packets;
	u64 first, last;
	u64 cgroup;
};

#define NSYS 512
#define NO_ROW (NSYS - 1) /* stands for every number that is larger: no call has it */

/* How to treat an operation of io_uring. */
struct uring_op {
	u8 how, kind;
};

enum uring_how {
	U_UNKNOWN, /* not known to this build */
	U_HARMLESS, /* touches no path and no peer */
	U_NAMED,
	U_WRITE,
	U_FD,
	U_SOCKET,
	U_OTHER, /* known, and told of by its number alone */
	U_FAMILY, /* makes a socket */
	U_RECEIVE, /* may bring descriptors */
	U_READ, /* of interest only of a socket that another made */
};

#define NURING 256

#endif
