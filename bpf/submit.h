/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring requests as they are submitted. */
#ifndef ASSAY_SUBMIT_H
#define ASSAY_SUBMIT_H
#include "uring.h"

/* Reports the submission of a request that names files. */
__noinline u64 report_request(struct scratch *s, u64 req, u32 op)
{
	struct given a = {.at = IN_AT}, b = {.at = IN2_AT};
	u32 end;

	if (!s)
		return 0;
	take_names(s, req, op, &a, &b);
	if (!(s->bits & B_FAILED_READ))
		s->bits |= B_COPIED;
	s->has_slot = 0;
	begin_call(s);
	end = put_given(s, 0, S_PATH, ROOM_AT, &a);
	if (op == OP_RENAMEAT || op == OP_LINKAT)
		end = put_given(s, end, S_PATH2, ROOM2_AT, &b);
	send_names(s, end, &a, &b);
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
	s->peer.len = user_address(s, (u64)BPF_CORE_READ(o, addr), BPF_CORE_READ(o, addr_len), &s->peer.a, 1);
	if (s->peer.len && s->data[NAME_AT] == '/')
		root_of(t, &s->peer.at);
	else if (s->peer.len && s->data[NAME_AT])
		here(t, &s->peer.at);
	s->bits |= B_PENDING | (quiet ? B_QUIET : 0);
	report_peer(s);
	return 1;
}

/* Reports an operation by its number alone: either it or its file is unknown. */
static __always_inline int report_op(struct scratch *s, u32 op)
{
	s->kind = K_IO_URING_OP;
	s->bits = B_URING | B_NO_RESULT;
	s->how = s->arg[0] = op;
	return report_args(s);
}

/* Reports the making of a socket whose peers no hook sees. Returns 0 for any other. */
static __always_inline u64 new_socket(struct scratch *s, u64 req, int quiet)
{
	struct io_socket *o = (void *)req;

	s->arg[0] = (u32)BPF_CORE_READ(o, domain);
	s->arg[1] = (u32)BPF_CORE_READ(o, type);
	s->arg[2] = (u32)BPF_CORE_READ(o, protocol);
	if (ordinary(s->arg[0], s->arg[1], s->arg[2]))
		return filter(s);
	s->bits |= B_PENDING | (quiet ? B_QUIET : 0);
	begin_call(s);
	emit(s, 0);
	return s->r.id;
}

static __always_inline struct scratch *begin_uring(void)
{
	struct scratch *s = scratch(CTX_TASK);

	if (!s)
		return 0;
	s->hook = H_IOURING;
	s->nr = s->is32 = s->name = s->about = 0;
	s->ret = 0;
	s->how = s->bytes = 0;
	s->bits = B_URING;
	__builtin_memset(s->arg, 0, sizeof(s->arg));
	s->recorded = ALL_ARGS;
	return s;
}

/* Whether a receiving request goes on after its first message: IORING_RECV_MULTISHOT, which the kernel
 * keeps with the flags of the request. */
static __always_inline int is_multishot(u64 req)
{
	struct io_sr_msg *o = (void *)req;

	return bpf_core_field_exists(o->flags) && BPF_CORE_READ(o, flags) & 2;
}

/* Reports a submission to the session at hand. Returns the id of the record that
 * its completion belongs to, 0 for none. */
__noinline u64 report_submission(struct scratch *s, u64 request, u32 op, u32 flags)
{
	struct io_kiocb *req = (void *)request;
	u32 how = uring_ops[op & (NURING - 1)].how, tid = bpf_get_current_task_btf()->pid;
	int quiet = flags & SKIP_SUCCESS;
	u64 f = 0;

	if (!s || count_fired(s->session, H_IOURING))
		return 0;
	s->kind = uring_ops[op & (NURING - 1)].kind;
	switch (how) {
	case U_HARMLESS:
		return filter(s);
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

		if (s->kind == K_CONNECT || s->kind == K_SENDTO || s->kind == K_BIND) {
			if (put_pending(s->session, tid, &mark))
				count_loss(s->session, H_IOURING);
			if (s->kind == K_SENDTO && quiet && flags & FIXED_FILE)
				break; /* nothing says whether it is a socket of netlink */
			if (s->kind == K_CONNECT && !(flags & FIXED_FILE) && unix_connect(s, request, quiet))
				return s->r.id;
		}
		return filter(s);
	}
	case U_RECEIVE:
		if (quiet || is_multishot(request)) { /* its messages come without a completion that has them */
			struct sock *sk = flags & FIXED_FILE ? 0 : sock_of(BPF_CORE_READ(req, cqe.fd));

			if (!sk || BPF_CORE_READ(sk, __sk_common.skc_family) == AF_UNIX)
				unseen(s);
		}
		return filter(s);
	case U_READ:
		if (quiet) { /* nothing says when it has read */
			if (flags & FIXED_FILE)
				break;
			f = file_of(BPF_CORE_READ(req, cqe.fd));
			if (f && type_of(f) == 0140000)
				report_foreign(s, f);
		}
		return filter(s);
	case U_FAMILY:
		if (!bpf_core_field_exists(struct io_socket, domain))
			break;
		return new_socket(s, request, quiet);
	case U_WRITE:
	case U_FD:
		if (!quiet)
			return filter(s); /* its completion says how it ended */
		if (!(flags & FIXED_FILE))
			f = file_of(BPF_CORE_READ(req, cqe.fd));
		if (!f)
			break;
		if (how == U_WRITE && !keeps(f))
			return filter(s);
		s->bits |= B_NO_RESULT; /* nothing says whether it succeeds */
		report_file(s, f);
		return 0;
	}
	report_op(s, op);
	return 0;
}

#define SPLICE_FD_IN_FIXED (1U << 31)

/* Reports to the session at hand the socket that a request splices from, which its completion no longer has. */
__noinline int splices(struct scratch *s, u64 request)
{
	struct io_splice *o = (void *)request;
	struct session *own;
	u64 f;

	if (!s || !bpf_core_field_exists(o->splice_fd_in))
		return 0;
	if (BPF_CORE_READ(o, flags) & SPLICE_FD_IN_FIXED) {
		if ((own = session(s->session)))
			own->passed |= CAME_UNSEEN;
		return 0;
	}
	f = file_of(BPF_CORE_READ(o, splice_fd_in));
	return f && type_of(f) == 0140000 ? report_foreign(s, f) : 0;
}

/* Keeps the request for its completion, with the id of the record that it made. The
 * request is built here, as Linux 6.1 has no room for it below report_submission. */
__noinline int keep_request(u32 session, u64 request, u64 id, u32 quiet)
{
	struct io_kiocb *req = (void *)request;
	struct request r = {.id = id, .op = BPF_CORE_READ(req, opcode), .user_data = BPF_CORE_READ(req, cqe.user_data)};
	u32 how = uring_ops[r.op & (NURING - 1)].how;
	u64 key = request;
	long failed;

	if (how == U_HARMLESS || how == U_READ || how == U_UNKNOWN || how == U_OTHER)
		return 0;
	whose(&r.who, bpf_get_current_task_btf());
	if ((r.op == OP_OPENAT || r.op == OP_OPENAT2) && bpf_core_field_exists(struct io_open, file_slot)) {
		struct io_open *o = (void *)req;

		r.direct = BPF_CORE_READ(o, file_slot) != 0;
	}
	if (r.op == OP_ACCEPT && bpf_core_field_exists(struct io_accept, file_slot)) {
		struct io_accept *o = (void *)req;

		r.direct = BPF_CORE_READ(o, file_slot) != 0;
	}
	/* The kernel has reused the address: the other request is over. */
	drop_own(&quiet_requests, session, &key);
	if (quiet) {
		drop_own(&requests, session, &key);
		put_own(&quiet_requests, session, &key, &r);
		return 0;
	}
	failed = put_own(&requests, session, &key, &r);
	if (r.op == OP_ACCEPT && !failed) {
		u64 shot = mix((u64)BPF_CORE_READ(req, ctx), r.user_data);
		struct request *same = get_own(&accepts, session, &shot);

		r.n = same ? same->n + 1 : 1;
		failed = put_own(&accepts, session, &shot, &r);
	}
	if (failed)
		count_loss(session, H_IOURING);
	return 0;
}

SEC("raw_tp/io_uring_submit_req")
int BPF_PROG(submitted, struct io_kiocb *req)
{
	struct scope *in = scope_here();
	struct scratch *s;
	u32 i, flags;
	u64 id;

	if (!in || !in->n)
		return 0;
	bpf_probe_read_kernel(&flags, 4, (void *)req + bpf_core_field_offset(req->flags));
	for (i = 0; i < DEPTH && i < in->n; i++) {
		if (!(s = begin_uring()))
			break;
		s->session = number(in, i);
		id = report_submission(s, (u64)req, BPF_CORE_READ(req, opcode), flags);
		keep_request(s->session, (u64)req, id, flags & SKIP_SUCCESS);
		if (BPF_CORE_READ(req, opcode) == OP_SPLICE && (s = begin_uring()))
			splices(s, (u64)req);
	}
	return 0;
}

#endif
