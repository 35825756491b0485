/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring requests as they complete. */
#ifndef ASSAY_COMPLETE_H
#define ASSAY_COMPLETE_H
#include "uring.h"

/* Takes the request that has completed out of the table. 0 if it is not there. */
__noinline int take_request(u32 session, u64 req, u64 ring, u64 user_data, struct request *r)
{
	u64 key = req, shot = mix(ring, user_data);
	struct request *found;

	if (!r)
		return 0;
	found = req ? get_own(&requests, session, &key) : get_own(&accepts, session, &shot);
	if (!found && req)
		found = get_own(&quiet_requests, session, &key);
	/* An earlier request's, which ended unseen, at the address that this one has now. */
	if (!found || found->user_data != user_data)
		return 0;
	*r = *found;
	if (!req)
		return 1;
	drop_own(&requests, session, &key);
	drop_own(&quiet_requests, session, &key);
	if (r->op == OP_ACCEPT && (found = get_own(&accepts, session, &shot)) && !--found->n)
		drop_own(&accepts, session, &shot);
	return 1;
}

/* Reports the result of a socket operation. file is the request's. */
static __always_inline int socket_done(struct scratch *s, struct request *r, u64 file)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct file *f = (void *)file;
	struct address *seen;
	struct socket *so;
	struct sock *sk;
	struct peer *p = &s->peer;
	u64 cookie;

	__builtin_memset(p, 0, sizeof(*p));
	if (s->kind == K_ACCEPT && s->ret == -11 /* EAGAIN */)
		return filter(s);
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
	seen = get_own(&uring_addresses, s->session, &cookie);
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
		drop_own(&uring_addresses, s->session, &cookie);
		if (told)
			return filter(s);
	} else if (s->kind == K_SENDTO && p->a.type == SOCK_STREAM) {
		return filter(s); /* bytes of a connection */
	}
	if (s->kind == K_SENDTO && s->ret > 0)
		s->arg[4] = s->bytes = s->ret;
	if (p->a.family == AF_UNIX && s->ret >= 0) {
		struct unix_sock *u = (void *)sk;

		if (s->kind == K_CONNECT || s->kind == K_SENDTO)
			u = (void *)BPF_CORE_READ(u, peer);
		if (u)
			p->len = unix_name(s, (u64)u, &p->at);
		p->walked = p->at.dentry != 0;
	}
	return report_peer(s);
}

/* Reports the end of a request that named files, for the record that its submission made. */
__noinline int named_done(struct scratch *s, u64 id, u64 file)
{
	struct file *f = (void *)file;
	struct path at = {};
	u32 n = 0, lane;

	if (!s)
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
	emit(s, n);
	return 0;
}

/* Reports a completion to the session at hand. */
__noinline int done(struct scratch *s, struct request *r, u64 req, u64 id)
{
	struct io_kiocb *k = (void *)req;
	u32 op, how;
	u64 f;

	if (!s || !r || count_fired(s->session, H_IOURING))
		return 0;
	op = r->op;
	how = uring_ops[op & (NURING - 1)].how;
	s->kind = uring_ops[op & (NURING - 1)].kind;
	if (how == U_NAMED) {
		if (op == OP_RENAMEAT || op == OP_LINKAT || op == OP_SYMLINKAT || op == OP_UNLINKAT)
			rearranged(s);
		f = 0;
		if ((op == OP_OPENAT || op == OP_OPENAT2) && s->ret >= 0 && !r->direct &&
			bpf_get_current_task_btf()->tgid == r->who.tgid)
			f = file_of(s->ret);
		return named_done(s, id, f);
	}
	if ((how == U_SOCKET || how == U_FAMILY) && id)
		return named_done(s, id, 0);
	f = req ? (u64)BPF_CORE_READ(k, file) : 0;
	if (op == OP_SENDMSG || how == U_RECEIVE) {
		struct io_sr_msg *o = (void *)req;

		s->control.judged = how != U_RECEIVE && f && !is_unix(f);
		if (s->ret >= 0 && req && bpf_core_field_exists(struct io_sr_msg, umsg))
			look_for_rights(s, (u64)BPF_CORE_READ(o, umsg), how == U_RECEIVE ? PASSED_IN : PASSED_OUT);
		if (s->control.ways && note_rights(s, (u64)sock_in(f)) & (CAME_FROM_OUTSIDE | WENT_OUTSIDE))
			unseen(s);
		if (how == U_RECEIVE)
			return filter(s);
	}
	if ((how == U_WRITE || s->kind == K_SENDTO) && s->ret >= 0 && netlink_of(f)) {
		filter(s);
		return report_operation(s, of_table(T_NETLINK, UNSEEN)); /* a worker may have sent it */
	}
	if (how == U_SOCKET) {
		socket_done(s, r, f);
		return report_control(s);
	}
	if (how == U_FAMILY || !f || (how == U_WRITE && (!s->ret || !keeps(f))))
		return filter(s);
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

/* The task that a request was made by, 0 where that is not known. */
static __always_inline struct task_struct *task_of_request(u64 req)
{
	struct io_kiocb___tctx *now = (void *)req;
	struct io_kiocb___task *before = (void *)req;

	if (!req)
		return 0;
	if (bpf_core_field_exists(now->tctx))
		return BPF_CORE_READ(now, tctx, task);
	return bpf_core_field_exists(before->task) ? BPF_CORE_READ(before, task) : 0;
}

/* The sessions that a request belongs to. It can complete in its process, in a worker of
 * that, or, when the ring is closed, in a worker of the kernel's own. */
static __always_inline struct scope *scope_of_request(u64 req)
{
	struct task_struct *t = task_of_request(req);
	struct cgroup *cg;

	if (!t || !(cg = BPF_CORE_READ(t, cgroups, dfl_cgrp)))
		return scope_here();
	return scope_of(BPF_CORE_READ(cg, kn, id), (u64)cg);
}

/* The socket's file that a request read from or wrote to, 0 for none. */
__noinline u64 socket_of_request(u64 req)
{
	struct io_kiocb *k = (void *)req;
	u32 op, how;
	u64 f;

	if (!req)
		return 0;
	op = BPF_CORE_READ(k, opcode) & (NURING - 1);
	how = uring_ops[op].how;
	if (how != U_READ && how != U_RECEIVE && how != U_WRITE && uring_ops[op].kind != K_SENDTO)
		return 0;
	f = (u64)BPF_CORE_READ(k, file);
	return f && type_of(f) == 0140000 ? f : 0;
}

/* Reports a socket that a request used to the session at hand. */
__noinline int used_by_request(struct scratch *s, u64 req, u64 file)
{
	struct task_struct *t = task_of_request(req);

	if (!s || !t)
		return 0;
	s->who.start = BPF_CORE_READ(t, group_leader, start_boottime);
	s->who.cgroup = BPF_CORE_READ(t, cgroups, dfl_cgrp, kn, id);
	s->who.tgid = BPF_CORE_READ(t, tgid);
	s->who.tid = BPF_CORE_READ(t, pid);
	s->who.ppid = BPF_CORE_READ(t, real_parent, tgid);
	s->who.exec = BPF_CORE_READ(t, self_exec_id);
	return report_foreign(s, file);
}

SEC("raw_tp/io_uring_complete")
int completed(u64 *ctx)
{
	u64 ring = ctx[0], req = ctx[1], user_data, file;
	struct scope *in = scope_of_request(req), here;
	struct request r = {}; /* before 6.4, the verifier wants what a function gets to be initialized */
	struct scratch *s;
	s32 res;
	u32 i;

	if (!in || !in->n)
		return 0;
	here = *in;
	if (complete_args == 3) {
		struct io_uring_cqe *cqe = (void *)ctx[2];

		res = BPF_CORE_READ(cqe, res);
		user_data = BPF_CORE_READ(cqe, user_data);
	} else {
		user_data = ctx[2];
		res = ctx[3];
	}
	file = socket_of_request(req);
	for (i = 0; i < DEPTH && i < here.n; i++) {
		u32 at = number(&here, i);

		if (!(s = begin_uring()))
			return 0;
		s->session = at;
		s->is_other = 1;
		if (take_request(at, req, ring, user_data, &r)) {
			s->ret = res;
			s->who = r.who;
			done(s, &r, req, r.id);
		}
		if (file) {
			begin_uring();
			used_by_request(s, req, file);
		}
		s->is_other = 0;
	}
	return 0;
}

#endif
