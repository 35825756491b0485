/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring: requests bypass system calls, so their opcode and file name at
 * submission are all that this tier sees. The name is the kernel's copy. */
#ifndef ASSAY_URING_H
#define ASSAY_URING_H
#include "scope.h"
#include "socket.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct filename {
	const char *name;
};
struct io_open {
	int dfd;
	struct filename *filename;
};
struct io_unlink {
	int dfd;
	struct filename *filename;
};
struct io_mkdir {
	int dfd;
	struct filename *filename;
};
struct io_rename {
	int old_dfd, new_dfd;
	struct filename *oldpath, *newpath;
};
struct io_link {
	int old_dfd, new_dfd;
	struct filename *oldpath, *newpath;
};
#pragma clang attribute pop

/* A name of a request and where it begins. */
struct request_name {
	struct filename *name;
	struct path base;
	u32 len;
	s32 dfd;
};

/* Reads the name to off and hashes it. */
__noinline int take_name(struct scratch *s, u32 off, struct request_name *r)
{
	struct filename *f;
	long n;

	if (!s || !r)
		return 0;
	f = r->name; /* in a local: see step() */
	if (!f)
		return 0;
	n = bpf_probe_read_kernel_str(&s->data[off & (DATA - 1)], 4096, BPF_CORE_READ(f, name));
	if (n <= 0) {
		s->bits |= B_FAILED_READ;
		return 0;
	}
	r->len = n - 1;
	hash_string(s, off, r->len);
	if (s->data[off & (DATA - 1)] == '/')
		root_of(bpf_get_current_task_btf(), &r->base);
	else
		dir_of(r->dfd, &r->base);
	return 0;
}

/* Puts the name's directory at end. */
static __always_inline u32 put_base(struct scratch *s, u32 end, u32 seg, struct request_name *r)
{
	u32 next;

	if (!r->base.dentry) {
		s->r.bits |= B_NO_BASE;
		return end;
	}
	next = walk_base(s, end, &r->base);
	s->r.seg[seg & (S_COUNT - 1)] = next - end;
	return next;
}

/* Reports a request to the session at hand. */
__noinline int report_request(struct scratch *s, u64 request)
{
	struct io_kiocb *req = (void *)request;
	struct task_struct *t = bpf_get_current_task_btf();
	struct pending mark = {.uring = 1};
	struct request_name a = {}, b = {};
	struct session *own;
	struct counter *c;
	u32 tid = t->pid, end;
	u8 op;

	if (!s || !(own = session(s->session)) || !(c = cell(s->session, H_IOURING)))
		return 0;
	c->fired++;
	op = BPF_CORE_READ(req, opcode);
	if (op == 16 || op == 9 || op == 26 || op == 56) { /* CONNECT, SENDMSG, SEND, BIND: see on_peer */
		put_pending(s->session, tid, &mark);
	} else if ((op == 18 || op == 28) && bpf_core_field_exists(struct io_open, filename)) {
		struct io_open *o = (void *)req;

		a.name = BPF_CORE_READ(o, filename); /* OPENAT, OPENAT2 */
		a.dfd = BPF_CORE_READ(o, dfd);
	} else if (op == 36 && bpf_core_field_exists(struct io_unlink, filename)) {
		struct io_unlink *o = (void *)req;

		a.name = BPF_CORE_READ(o, filename);
		a.dfd = BPF_CORE_READ(o, dfd);
	} else if (op == 37 && bpf_core_field_exists(struct io_mkdir, filename)) {
		struct io_mkdir *o = (void *)req;

		a.name = BPF_CORE_READ(o, filename);
		a.dfd = BPF_CORE_READ(o, dfd);
	} else if (op == 35 && bpf_core_field_exists(struct io_rename, oldpath)) {
		struct io_rename *o = (void *)req;

		a.name = BPF_CORE_READ(o, oldpath);
		a.dfd = BPF_CORE_READ(o, old_dfd);
		b.name = BPF_CORE_READ(o, newpath);
		b.dfd = BPF_CORE_READ(o, new_dfd);
		own->unsettled = 1;
	} else if ((op == 38 || op == 39) && bpf_core_field_exists(struct io_link, oldpath)) {
		struct io_link *o = (void *)req;

		if (op == 39) { /* SYMLINKAT has its content there */
			a.name = BPF_CORE_READ(o, oldpath);
			a.dfd = BPF_CORE_READ(o, old_dfd);
			b.name = BPF_CORE_READ(o, newpath);
			b.dfd = BPF_CORE_READ(o, new_dfd);
		} else {
			a.name = BPF_CORE_READ(o, newpath);
			a.dfd = BPF_CORE_READ(o, new_dfd);
		}
	}
	s->bits = 0;
	s->hash.a = s->hash.b = seed;
	take_name(s, IN_AT, &a);
	take_name(s, IN2_AT, &b);
	s->nr = 0;
	s->ret = 0;
	s->how = op;
	s->bytes = 0;
	key_who(s, K_IOURING_OP);
	s->key[2] = s->hash.a;
	s->key[3] = s->hash.b;
	s->key[4] = place(&a.base);
	s->key[5] = place(&b.base);
	if (coalesce(s, c))
		return 0;
	begin(s, CTX_TASK, K_IOURING_OP, H_IOURING);
	s->r.bits |= B_NO_RESULT | s->bits;
	s->r.arg[0] = op;
	s->r.seg[S_PATH] = end = a.len;
	bpf_probe_read_kernel(s->data, a.len & 4095, &s->data[IN_AT]);
	if (a.name)
		end = put_base(s, end, S_BASE, &a);
	if (b.len) {
		s->r.seg[S_PATH2] = b.len;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], b.len & 4095, &s->data[IN2_AT]);
		end += b.len;
	}
	if (b.name)
		end = put_base(s, end, S_BASE2, &b);
	emit_keyed(s, c, end);
	return 0;
}

SEC("raw_tp/io_uring_submit_req")
int BPF_PROG(submitted, struct io_kiocb *req)
{
	struct scope *in = scope_here();
	struct scratch *s;
	u32 i;

	if (!in || !in->n || !(s = scratch(CTX_TASK)))
		return 0;
	for (i = 0; i < DEPTH && i < in->n; i++) {
		s->session = number(in, i);
		report_request(s, (u64)req);
	}
	return 0;
}

#endif
