/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring: requests bypass system calls. What a request names is read when it is
 * submitted, since the kernel frees it when it is carried out; how it ended, and
 * what it came to, when it completes. The two are joined by the request's address,
 * which is another's as soon as it has completed. */
#ifndef ASSAY_URING_H
#define ASSAY_URING_H
#include "scope.h"
#include "socket.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct filename {
	const char *name;
};
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
struct io_sync {
	s64 len, off;
	int mode;
};
struct io_ftrunc {
	s64 len;
};
#pragma clang attribute pop

#define FIXED_FILE 1   /* IOSQE_FIXED_FILE and io_kiocb.flags */
#define SKIP_SUCCESS 64 /* IOSQE_CQE_SKIP_SUCCESS */

enum {
	OP_ACCEPT = 13, OP_FALLOCATE = 17, OP_OPENAT = 18, OP_OPENAT2 = 28, OP_RENAMEAT = 35, OP_UNLINKAT = 36, OP_MKDIRAT = 37,
	OP_SYMLINKAT = 38, OP_LINKAT = 39, OP_SETXATTR = 42, OP_FTRUNCATE = 55,
};

volatile const struct uring_op uring_ops[NURING];
/* How many arguments io_uring_complete has: three with the completion behind a
 * pointer, or seven. Set before load. */
volatile const u32 complete_args;

struct request {
	struct owner who;
	u64 user_data; /* the program's own number */
	u32 op, direct;
	u32 n;             /* sessions that it belongs to */
	u32 handle[DEPTH]; /* theirs */
	u64 id[DEPTH];     /* of the records that its submission made, 0 without one */
};

/* Requests under way, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct request);
} requests SEC(".maps");

/* Accepts, whose further completions come without the request, by what they come
 * with: the ring and the program's own number. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct request);
} accepts SEC(".maps");

static __always_inline int take_name(struct scratch *s, struct given *g, struct filename *f, s32 dfd)
{
	long n;

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
		take_name(s, a, BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
		if (s->arg[2] & RESOLVE_IN_ROOT) {
			dir_of(BPF_CORE_READ(o, dfd), &a->base);
			a->root = a->base;
		}
	} else if (op == OP_UNLINKAT && bpf_core_field_exists(struct io_unlink, filename)) {
		struct io_unlink *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		take_name(s, a, BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
	} else if (op == OP_MKDIRAT && bpf_core_field_exists(struct io_mkdir, filename)) {
		struct io_mkdir *o = (void *)req;

		s->arg[1] = BPF_CORE_READ(o, mode);
		take_name(s, a, BPF_CORE_READ(o, filename), BPF_CORE_READ(o, dfd));
	} else if (op == OP_RENAMEAT && bpf_core_field_exists(struct io_rename, oldpath)) {
		struct io_rename *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		take_name(s, a, BPF_CORE_READ(o, oldpath), BPF_CORE_READ(o, old_dfd));
		take_name(s, b, BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_LINKAT && bpf_core_field_exists(struct io_link, oldpath)) {
		struct io_link *o = (void *)req;

		s->arg[0] = (u32)BPF_CORE_READ(o, flags);
		take_name(s, a, BPF_CORE_READ(o, oldpath), BPF_CORE_READ(o, old_dfd));
		take_name(s, b, BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_SYMLINKAT && bpf_core_field_exists(struct io_link, oldpath)) {
		struct io_link *o = (void *)req;
		struct filename *f = BPF_CORE_READ(o, oldpath);
		long n = bpf_probe_read_kernel_str(&s->data[NAME_AT], 4096, BPF_CORE_READ(f, name));

		s->name = n > 0 ? n - 1 : 0;
		take_name(s, a, BPF_CORE_READ(o, newpath), BPF_CORE_READ(o, new_dfd));
	} else if (op == OP_SETXATTR && bpf_core_field_exists(struct io_xattr, filename)) {
		struct io_xattr *o = (void *)req;

		take_name(s, a, BPF_CORE_READ(o, filename), -100);
	} else {
		s->bits |= B_FAILED_READ; /* the kernel keeps it elsewhere */
	}
	return 0;
}

/* Reports the submission of a request that names files. */
__noinline u64 report_request(struct scratch *s, u64 req, u32 op)
{
	struct given a = {.at = IN_AT}, b = {.at = IN2_AT};
	struct counter *c;
	u32 end, n;

	if (!s || !(c = cell(s->session, s->hook)))
		return 0;
	take_names(s, req, op, &a, &b);
	s->has_slot = 0;
	begin_call(s);
	end = put_given(s, 0, S_PATH, ROOM_AT, &a);
	if (op == OP_RENAMEAT || op == OP_LINKAT)
		end = put_given(s, end, S_PATH2, ROOM2_AT, &b);
	n = s->name;
	if (n) {
		s->r.seg[S_NAME] = n;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n & 4095, &s->data[NAME_AT]);
		end += n;
	}
	end = put_original(s, end, S_TOOL, &a);
	end = put_original(s, end, S_TRACE, &b);
	emit_keyed(s, c, end);
	return s->r.id;
}

/* Reports the submission of a connection to a unix socket's name: if it fails,
 * nothing else knows the name. Returns 0 for any other. */
static __always_inline int unix_connect(struct scratch *s, u64 req, int quiet)
{
	struct io_connect *o = (void *)req;
	struct io_kiocb *k = (void *)req;
	struct task_struct *t = bpf_get_current_task_btf();
	struct sock *sk;

	if (!bpf_core_field_exists(struct io_connect, addr_len))
		return 0;
	sk = sock_of(BPF_CORE_READ(k, cqe.fd));
	if (!sk || BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
		return 0;
	__builtin_memset(&s->peer, 0, sizeof(s->peer));
	addresses((u64)sk, &s->peer.a);
	s->peer.len = user_address(s, (u64)BPF_CORE_READ(o, addr), BPF_CORE_READ(o, addr_len), &s->peer.a, 0);
	s->data[NAME_AT + (s->peer.len & 127)] = 0;
	if (s->peer.len && s->data[NAME_AT] == '/')
		root_of(t, &s->peer.at);
	else if (s->peer.len && s->data[NAME_AT])
		here(t, &s->peer.at);
	s->bits |= B_PENDING | (quiet ? B_QUIET : 0);
	report_peer(s);
	return 1;
}

/* What goes by its number alone: an operation that is not known, or one whose file
 * cannot be told. */
static __always_inline int report_op(struct scratch *s, u32 op)
{
	s->kind = K_IOURING_OP;
	s->bits = B_URING | B_NO_RESULT;
	s->how = s->arg[0] = op;
	return report_args(s);
}

static __always_inline struct scratch *begin_uring(void)
{
	struct scratch *s = scratch(CTX_TASK);

	if (!s)
		return 0;
	s->hook = H_IOURING;
	s->nr = s->is32 = s->name = 0;
	s->ret = 0;
	s->how = s->bytes = 0;
	s->bits = B_URING;
	__builtin_memset(s->arg, 0, sizeof(s->arg));
	return s;
}

/* Reports a submission to the session at hand. Returns the id of the record that
 * its completion belongs to, 0 for none. */
__noinline u64 report_submission(struct scratch *s, u64 request, u32 op, u32 flags)
{
	struct io_kiocb *req = (void *)request;
	u32 how = uring_ops[op & (NURING - 1)].how, tid = bpf_get_current_task_btf()->pid;
	int quiet = flags & SKIP_SUCCESS;
	struct counter *c;
	u64 f = 0;

	if (!s || !(c = cell(s->session, H_IOURING)))
		return 0;
	c->fired++;
	s->kind = uring_ops[op & (NURING - 1)].kind;
	switch (how) {
	case U_HARMLESS:
		c->filtered++;
		return 0;
	case U_NAMED:
		s->bits |= B_PENDING | (quiet ? B_QUIET : 0);
		if (op == OP_RENAMEAT || op == OP_LINKAT || op == OP_SYMLINKAT) {
			struct session *own = session(s->session);

			rearranged(s);
			if (own)
				own->unsettled = 1; /* when it happens is seen, but by another program */
		}
		return report_request(s, request, op);
	case U_SOCKET: {
		struct pending mark = {.uring = quiet ? URING_QUIET : URING_TELLS};

		if (s->kind == K_CONNECT || s->kind == K_SEND || s->kind == K_BIND) {
			put_pending(s->session, tid, &mark);
			if (s->kind == K_CONNECT && !(flags & FIXED_FILE) && unix_connect(s, request, quiet))
				return s->r.id;
		}
		c->filtered++;
		return 0;
	}
	case U_WRITE:
	case U_FD:
		if (!quiet) {
			c->filtered++; /* its completion tells */
			return 0;
		}
		if (!(flags & FIXED_FILE))
			f = file_of(BPF_CORE_READ(req, cqe.fd));
		if (!f)
			break;
		if (how == U_WRITE && !keeps(f)) {
			c->filtered++;
			return 0;
		}
		s->bits |= B_NO_RESULT; /* nothing tells if it succeeds */
		report_file(s, f);
		return 0;
	}
	report_op(s, op);
	return 0;
}

SEC("raw_tp/io_uring_submit_req")
int BPF_PROG(submitted, struct io_kiocb *req)
{
	struct scope *in = scope_here();
	struct request r = {};
	struct scratch *s;
	u64 key = (u64)req;
	u32 i, op, how, flags;

	if (!in || !in->n)
		return 0;
	op = BPF_CORE_READ(req, opcode);
	how = uring_ops[op & (NURING - 1)].how;
	bpf_probe_read_kernel(&flags, 4, (void *)req + bpf_core_field_offset(req->flags));
	whose(&r.who, bpf_get_current_task_btf());
	r.op = op;
	r.user_data = BPF_CORE_READ(req, cqe.user_data);
	if ((op == OP_OPENAT || op == OP_OPENAT2) && bpf_core_field_exists(struct io_open, file_slot)) {
		struct io_open *o = (void *)req;

		r.direct = BPF_CORE_READ(o, file_slot) != 0;
	}
	if (op == OP_ACCEPT && bpf_core_field_exists(struct io_accept, file_slot)) {
		struct io_accept *o = (void *)req;

		r.direct = BPF_CORE_READ(o, file_slot) != 0;
	}
#pragma unroll
	for (i = 0; i < DEPTH; i++) {
		if (i >= in->n || !(s = begin_uring()))
			break;
		s->session = number(in, i);
		r.handle[i] = in->handle[i];
		r.id[i] = report_submission(s, (u64)req, op, flags);
		r.n = i + 1;
	}
	if (how == U_HARMLESS || how == U_UNKNOWN || how == U_OTHER)
		return 0;
	if (op == OP_ACCEPT) {
		u64 shot = mix((u64)BPF_CORE_READ(req, ctx), r.user_data);

		bpf_map_update_elem(&accepts, &shot, &r, BPF_ANY);
	}
	if (bpf_map_update_elem(&requests, &key, &r, BPF_ANY)) {
		for (i = 0; i < DEPTH && i < in->n; i++) {
			struct counter *c = cell(number(in, i), H_IOURING);

			if (c)
				c->failed_reads++;
		}
	}
	return 0;
}

/* What a socket operation came to. file is the request's. */
static __always_inline int socket_done(struct scratch *s, struct counter *c, struct request *r, u64 file)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct file *f = (void *)file;
	struct address *seen;
	struct socket *so;
	struct sock *sk;
	struct peer *p = &s->peer;
	u64 cookie;

	__builtin_memset(p, 0, sizeof(*p));
	if (s->kind == K_ACCEPT && s->ret == -11 /* EAGAIN */) {
		c->filtered++;
		return 0;
	}
	if (s->kind == K_ACCEPT && s->ret >= 0) {
		file = r->direct || t->tgid != r->who.tgid ? 0 : file_of(s->ret);
		f = (void *)file;
	}
	if (!f || type_of((u64)f) != 0140000) {
		s->how = s->ret;
		return report_args(s);
	}
	so = BPF_CORE_READ(f, private_data);
	sk = BPF_CORE_READ(so, sk);
	addresses((u64)sk, &p->a);
	cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	cookie |= (u64)s->session << 48;
	seen = bpf_map_lookup_elem(&uring_addresses, &cookie);
	if (seen) {
		int told = seen->pad == ADDRESS_TOLD;

		if (s->kind == K_BIND && s->ret < 0) {
			p->a.lport = seen->lport;
			__builtin_memcpy(p->a.local, seen->local, 16);
		} else if (s->kind != K_BIND) {
			p->a.family = seen->family;
			p->a.rport = seen->rport;
			__builtin_memcpy(p->a.remote, seen->remote, 16);
		}
		bpf_map_delete_elem(&uring_addresses, &cookie);
		if (told) {
			c->filtered++;
			return 0;
		}
	} else if (s->kind == K_SEND && p->a.type == SOCK_STREAM) {
		c->filtered++; /* bytes of a connection */
		return 0;
	}
	if (s->kind == K_SEND && s->ret > 0)
		s->arg[4] = s->bytes = s->ret;
	if (p->a.family == AF_UNIX && s->ret >= 0) {
		struct unix_sock *u = (void *)sk;

		if (s->kind == K_CONNECT || s->kind == K_SEND)
			u = (void *)BPF_CORE_READ(u, peer);
		if (u)
			p->len = unix_name(s, (u64)u, &p->at);
		p->walked = p->at.dentry != 0;
	}
	return report_peer(s);
}

/* The end of a request that named files, for the record that its submission made. */
__noinline int named_done(struct scratch *s, u64 id, u64 file)
{
	struct file *f = (void *)file;
	struct path at = {};
	struct counter *c;
	u32 n = 0, lane;

	if (!s || !(c = cell(s->session, s->hook)))
		return 0;
	s->has_slot = 0;
	lane = lane_of(s->kind);
	s->kind = K_URING_DONE;
	begin_call(s);
	s->lane = lane; /* where the submission went */
	s->r.id = id;
	if (f && !bpf_core_read(&at, sizeof(at), &f->f_path)) {
		s->r.bits |= B_WALKED;
		identify(&s->r, BPF_CORE_READ(f, f_inode));
		n = walk(s, 0, (u64)at.mnt, (u64)at.dentry);
		s->r.bits |= s->walk.bits;
		s->r.seg[S_PATH] = n;
	}
	emit(s, c, n);
	return 0;
}

/* Reports a completion to the session at hand. */
__noinline int done(struct scratch *s, struct request *r, u64 req, u64 id)
{
	struct io_kiocb *k = (void *)req;
	struct counter *c;
	u32 op, how;
	u64 f;

	if (!s || !r || !(c = cell(s->session, H_IOURING)))
		return 0;
	op = r->op;
	how = uring_ops[op & (NURING - 1)].how;
	c->fired++;
	s->kind = uring_ops[op & (NURING - 1)].kind;
	if (how == U_NAMED) {
		if (op == OP_RENAMEAT || op == OP_LINKAT || op == OP_SYMLINKAT || op == OP_UNLINKAT)
			rearranged(s);
		f = 0;
		if ((op == OP_OPENAT || op == OP_OPENAT2) && s->ret >= 0 && !r->direct && bpf_get_current_task_btf()->tgid == r->who.tgid)
			f = file_of(s->ret);
		return named_done(s, id, f);
	}
	if (how == U_SOCKET && id)
		return named_done(s, id, 0);
	f = req ? (u64)BPF_CORE_READ(k, file) : 0;
	if (how == U_SOCKET)
		return socket_done(s, c, r, f);
	if (!f || (how == U_WRITE && (!s->ret || !keeps(f)))) {
		c->filtered++;
		return 0;
	}
	if (how == U_WRITE && s->ret > 0)
		s->bytes = s->ret;
	if (op == OP_FALLOCATE && bpf_core_field_exists(struct io_sync, mode)) {
		struct io_sync *o = (void *)req;

		s->arg[1] = (u32)BPF_CORE_READ(o, mode);
		s->arg[2] = BPF_CORE_READ(o, off);
		s->arg[3] = BPF_CORE_READ(o, len);
		s->how = mix(mix(s->arg[1], s->arg[2]), s->arg[3]);
	} else if (op == OP_FTRUNCATE && bpf_core_field_exists(struct io_ftrunc, len)) {
		struct io_ftrunc *o = (void *)req;

		s->how = s->arg[1] = BPF_CORE_READ(o, len);
	}
	s->arg[4] = op;
	return report_file(s, f);
}

/* A completion comes wherever the request ended: in its process, in a worker of
 * it, or, at the ring's end, in one of the kernel's own. */
SEC("raw_tp/io_uring_complete")
int completed(u64 *ctx)
{
	u64 ring = ctx[0], req = ctx[1], key = req, user_data;
	struct request *found, r;
	struct session *own;
	struct scratch *s;
	s32 res;
	u32 i;

	if (complete_args == 3) {
		struct io_uring_cqe *cqe = (void *)ctx[2];

		res = BPF_CORE_READ(cqe, res);
		user_data = BPF_CORE_READ(cqe, user_data);
	} else {
		user_data = ctx[2];
		res = ctx[3];
	}
	if (!req) {
		key = mix(ring, user_data);
		found = bpf_map_lookup_elem(&accepts, &key);
	} else {
		found = bpf_map_lookup_elem(&requests, &key);
	}
	if (!found)
		return 0;
	r = *found;
	/* Another one's, whose end nothing told, and whose address this one has. */
	if (r.user_data != user_data)
		return 0;
	if (req)
		bpf_map_delete_elem(&requests, &key);
	for (i = 0; i < DEPTH && i < r.n; i++) {
		u32 at = r.handle[i & (DEPTH - 1)] & ((1 << SESSION_BITS) - 1);

		own = session(at);
		if (!own || own->handle != r.handle[i & (DEPTH - 1)]) /* it has ended */
			continue;
		s = begin_uring();
		if (!s)
			return 0;
		s->session = at;
		s->ret = res;
		s->who = r.who;
		s->is_other = 1;
		done(s, &r, req, r.id[i & (DEPTH - 1)]);
		s->is_other = 0;
	}
	return 0;
}

#endif
