/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring: requests bypass system calls. What a request names is read when it is
 * submitted, since the kernel frees it when it is carried out; how it ended, and
 * what it returned, when it completes. The request's address joins the two; the
 * kernel reuses it as soon as the request has completed. */
#ifndef ASSAY_URING_H
#define ASSAY_URING_H
#include "files.h"
#include "sessions.h"
#include "socket.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct open_how {
	u64 flags, mode, resolve;
};
struct io_open {
	int dfd;
	u32 file_slot;
	struct filename *filename;
	struct open_how how;
};
struct io_unlink {
	int dfd, flags;
	struct filename *filename;
};
struct io_mkdir {
	int dfd;
	u16 mode;
	struct filename *filename;
};
struct io_rename {
	int old_dfd, new_dfd, flags;
	struct filename *oldpath, *newpath;
};
struct io_link {
	int old_dfd, new_dfd, flags;
	struct filename *oldpath, *newpath;
};
struct io_xattr {
	struct filename *filename;
};
struct io_connect {
	void *addr;
	int addr_len;
};
struct io_accept {
	u32 file_slot;
};
struct io_sr_msg {
	u16 flags;
	void *umsg;
};
struct io_socket {
	int domain, type, protocol;
};
struct io_uring_task {
	struct task_struct *task;
};
struct io_kiocb___tctx { /* since Linux 6.13 */
	struct io_uring_task *tctx;
};
struct io_kiocb___task { /* before */
	struct task_struct *task;
};
struct io_sync {
	s64 len, off;
	int mode;
};
struct io_splice {
	int splice_fd_in;
	u32 flags;
};
struct io_ftrunc {
	s64 len;
};
#pragma clang attribute pop

#define FIXED_FILE 1   /* IOSQE_FIXED_FILE and io_kiocb.flags */
#define SKIP_SUCCESS 64 /* IOSQE_CQE_SKIP_SUCCESS */

enum {
	OP_SENDMSG = 9, OP_ACCEPT = 13, OP_FALLOCATE = 17, OP_OPENAT = 18, OP_OPENAT2 = 28, OP_SPLICE = 30,
	OP_RENAMEAT = 35, OP_UNLINKAT = 36, OP_MKDIRAT = 37, OP_SYMLINKAT = 38, OP_LINKAT = 39, OP_SETXATTR = 42,
	OP_FTRUNCATE = 55,
};

volatile const struct uring_op uring_ops[NURING];
/* How many arguments io_uring_complete has: three with the completion behind a
 * pointer, or seven. Set before load. */
volatile const u32 complete_args;

struct request {
	struct owner who;
	u64 user_data; /* the program's own number */
	u64 id;        /* of the record that its submission made, 0 without one */
	u32 op, direct;
	u64 n; /* in accepts: how many have the same key */
};

/* Requests under way, by address. One that finds no room is a loss of its session. */
OF_SESSIONS(requests, BPF_MAP_TYPE_HASH, 16384, BPF_F_NO_PREALLOC, 8, sizeof(struct request));

/* Requests whose success is not reported, so that they stay here. One that is forgotten
 * has a record already, which says that its result is not known. */
OF_SESSIONS(quiet_requests, BPF_MAP_TYPE_LRU_HASH, 1024, 0, 8, sizeof(struct request));

/* Accepts under way that accept many times. All completions but the last come without the
 * request, so the key is what they have: the ring and the program's own number. */
OF_SESSIONS(accepts, BPF_MAP_TYPE_HASH, 4096, BPF_F_NO_PREALLOC, 8, sizeof(struct request));

__noinline int take_request_name(struct scratch *s, struct given *g, u64 name, s32 dfd)
{
	struct filename *f = (void *)name;
	long n;

	if (!s || !g)
		return 0;
	root_of(bpf_get_current_task_btf(), &g->root);
	if (!f)
		return 0;
	n = bpf_probe_read_kernel_str(&s->data[g->at & (DATA - 1)], 4096, BPF_CORE_READ(f, name));
	if (n <= 0) {
		s->bits |= B_FAILED_READ;
		return 0;
	}
	g->len = n - 1;
	g->from = g->at;
	if (s->data[g->at & (DATA - 1)] == '/')
		g->base = g->root;
	else
		dir_of(dfd, &g->base);
	return 0;
}

/* Reads the names of the request, and its flags, mode and resolve to s->arg. */
__noinline int take_names(struct scratch *s, u64 req, u32 op, struct given *a, struct given *b)
{
	if (!s || !a || !b)
		return 0;
	if ((op == OP_OPENAT || op == OP_OPENAT2) && bpf_core_field_exists(struct io_open, filename)) {
		struct io_open *o = (void *)req;

		s->arg[0] = BPF_CORE_READ(o, how.flags);
		s->arg[1] = BPF_CORE_READ(o, how.mode);
		s->arg[2] = BPF_CORE_READ(o, how.resolve);
		take_request_name(s, a, (u64)BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
		if (s->arg[2] & RESOLVE_IN_ROOT) {
			dir_of(BPF_CORE_READ(o, dfd), &a->base);
			a->root = a->base;
		}
	} else if (op == OP_UNLINKAT && bpf_core_field_exists(struct io_unlink, filename)) {
		struct io_unlink *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		take_request_name(s, a, (u64)BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
	} else if (op == OP_MKDIRAT && bpf_core_field_exists(struct io_mkdir, filename)) {
		struct io_mkdir *o = (void *)req;

		s->arg[1] = BPF_CORE_READ(o, mode);
		take_request_name(s, a, (u64)BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
	} else if (op == OP_RENAMEAT && bpf_core_field_exists(struct io_rename, oldpath)) {
		struct io_rename *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		take_request_name(s, a, (u64)BPF_CORE_READ(o, oldpath), BPF_CORE_READ(o, old_dfd));
		take_request_name(s, b, (u64)BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_LINKAT && bpf_core_field_exists(struct io_link, oldpath)) {
		struct io_link *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		a->follow = s->arg[0] >> 10 & 1; /* AT_SYMLINK_FOLLOW */
		take_request_name(s, a, (u64)BPF_CORE_READ(o, oldpath), BPF_CORE_READ(o, old_dfd));
		take_request_name(s, b, (u64)BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_SYMLINKAT && bpf_core_field_exists(struct io_link, oldpath)) {
		struct io_link *o = (void *)req;
		struct filename *f = BPF_CORE_READ(o, oldpath);
		long n = bpf_probe_read_kernel_str(&s->data[NAME_AT], 4096, BPF_CORE_READ(f, name));

		s->name = n > 0 ? n - 1 : 0;
		take_request_name(s, a, (u64)BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_SETXATTR && bpf_core_field_exists(struct io_xattr, filename)) {
		struct io_xattr *o = (void *)req;

		a->follow = 1;
		take_request_name(s, a, (u64)BPF_CORE_READ(o, filename), -100);
	} else {
		s->bits |= B_FAILED_READ; /* the kernel keeps it elsewhere */
	}
	return 0;
}

#endif
