/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring: requests bypass system calls, so their opcode and file name at
 * submission are all that this tier sees. The name is the kernel's copy. */
#ifndef ASSAY_URING_H
#define ASSAY_URING_H
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
	struct filename *filename;
};
struct io_mkdir {
	struct filename *filename;
};
struct io_rename {
	struct filename *oldpath, *newpath;
};
#pragma clang attribute pop

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(submitted, struct io_kiocb *req)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct pending mark = {.uring = 1};
	struct filename *name = 0;
	struct counter *c;
	struct scratch *s;
	u32 tid = t->pid, n;
	u8 op;

	if (!in_scope())
		return 0;
	c = cell(H_IOURING);
	s = scratch(CTX_TASK);
	if (!c || !s)
		return 0;
	c->fired++;
	op = req->opcode;
	s->r.seg[S_PATH] = 0;
	if (op == 16 || op == 9 || op == 26) { /* CONNECT, SENDMSG, SEND: see on_peer */
		bpf_map_update_elem(&pendings, &tid, &mark, BPF_ANY);
	} else if ((op == 18 || op == 28) && bpf_core_field_exists(struct io_open, filename)) {
		struct io_open *o = (void *)req;

		name = BPF_CORE_READ(o, filename); /* OPENAT, OPENAT2 */
	} else if (op == 36 && bpf_core_field_exists(struct io_unlink, filename)) {
		struct io_unlink *o = (void *)req;

		name = BPF_CORE_READ(o, filename);
	} else if (op == 37 && bpf_core_field_exists(struct io_mkdir, filename)) {
		struct io_mkdir *o = (void *)req;

		name = BPF_CORE_READ(o, filename);
	} else if (op == 35 && bpf_core_field_exists(struct io_rename, oldpath)) {
		struct io_rename *o = (void *)req;

		name = BPF_CORE_READ(o, oldpath);
	}
	if (name)
		kernel_str(s, 0, S_PATH, (u64)BPF_CORE_READ(name, name));
	n = s->r.seg[S_PATH];
	s->hash.a = s->hash.b = seed;
	hash_string(s, 0, n);
	s->nr = 0;
	s->ret = 0;
	s->how = op;
	s->bytes = 0;
	key_who(s, K_IOURING_OP);
	s->key[2] = s->hash.a;
	s->key[3] = s->hash.b;
	s->key[4] = s->key[5] = 0;
	if (coalesce(s, c))
		return 0;
	begin(s, CTX_TASK, K_IOURING_OP, H_IOURING);
	s->r.bits |= B_NO_RESULT;
	s->r.arg[0] = op;
	s->r.seg[S_PATH] = n;
	s->r.bits |= B_NO_BASE;
	emit_keyed(s, c, n);
	return 0;
}

#endif
