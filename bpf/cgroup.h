/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Programs on the session's cgroup itself: they run for its sockets only.
 * They can be preempted and interrupted, so they use no scratch, and atomics. */
#ifndef ASSAY_CGROUP_H
#define ASSAY_CGROUP_H
#include "sessions.h"
#include "socket.h"

#define count(field) __sync_fetch_and_add(&(field), 1)

/* Which process a socket's traffic belongs to: the one that connected it or
 * sent through it last. */
OF_SESSIONS(owners, BPF_MAP_TYPE_LRU_HASH, 2048, 0, 8, sizeof(struct owner));

/* One more than the number of the session that these programs are attached for, by
 * its cgroup. 0 while user space has not said it. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_STORAGE);
	__type(key, u64);
	__type(value, u64);
} homes SEC(".maps");

/* The number of the session that the program runs for, less than 0 before it has one. */
static __always_inline s32 home(void)
{
	u64 *at = bpf_get_local_storage(&homes, 0);

	return (s32)*at - 1;
}

static __always_inline struct owner *owner_of(u32 session, u64 cookie)
{
	return get_own(&owners, session, &cookie);
}

/* Gives a record its number in the session. */
static __always_inline void number_net(struct record *r, struct session *own)
{
	u64 id = __sync_fetch_and_add(&own->net_ids, 1);

	r->id = 1ULL << 63 | id;
	r->serial = id + 1;
	r->stream = ST_NET;
	r->cpu = bpf_get_smp_processor_id();
}

struct net_record {
	struct record r;
	struct address a;
};

/* Sends a record about a peer and the result of the call. bits may be B_NO_RESULT: it has none. */
static __always_inline void emit_result(u32 session_at, struct counter *c, struct owner *o, struct address *a,
	u16 kind, u16 hook, u32 bits, s32 ret)
{
	struct session *own = session(session_at);
	void *ring = ring_of(session_at, lane_of(kind));
	struct net_record n = {};

	if (!own || !ring) {
		count(c->dropped);
		return;
	}
	n.r.t = bpf_ktime_get_boot_ns();
	number_net(&n.r, own);
	n.r.start = o->start;
	n.r.cgroup = o->cgroup;
	n.r.tgid = o->tgid;
	n.r.tid = o->tid;
	n.r.ppid = o->ppid;
	n.r.ret = ret;
	n.r.kind = kind;
	n.r.hook = hook;
	n.r.bits = bits;
	n.r.seg[S_ENV] = sizeof(n.a);
	n.a = *a;
	if (bpf_ringbuf_output(ring, &n, sizeof(n), BPF_RB_NO_WAKEUP))
		count(c->dropped);
	else
		count(c->emitted);
}

/* Sends a peer without waiting for a result. */
static __always_inline void emit_peer(u32 session, struct counter *c, struct owner *o, struct address *a, u16 kind,
	u16 hook)
{
	emit_result(session, c, o, a, kind, hook, B_NO_RESULT, 0);
}

/* Reports to one session how the opening of one of its connections ended. */
__noinline int report_settled(u32 session, u64 sock, u32 state)
{
	struct sock *sk = (void *)sock;
	struct address a = {};
	struct counter *c;
	struct owner *o;
	u64 cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	s32 err = 0;

	if (!cookie || !(o = owner_of(session, cookie)) || !(c = cell(session, H_TCP)))
		return 0;
	count(c->fired);
	if (state == 7)
		err = BPF_CORE_READ(sk, sk_err);
	addresses(sock, &a);
	/* Closed without an error of the socket's: its process gave it up, or
	 * connect itself failed and says why. */
	emit_result(session, c, o, &a, K_CONNECT_RESULT, H_TCP, state == 7 && !err ? B_NO_RESULT : 0, -err);
	return 0;
}

/* How the opening of a TCP connection ended, which may be long after connect
 * returned EINPROGRESS, and in whatever context a packet or a timer came. The
 * sessions are those of the socket's cgroup, and their sockets are those that
 * connect4 and connect6 saw. */
SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(settled, struct sock *sk, int old, int state)
{
	struct scope in = {};
	u64 cg;
	u32 i;

	if (old != 2 /* TCP_SYN_SENT */ || (state != 1 /* TCP_ESTABLISHED */ && state != 7 /* TCP_CLOSE */))
		return 0;
	cg = (u64)BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	if (!cg)
		return 0;
	find_sessions(&in, cg);
	for (i = 0; i < DEPTH && i < in.n; i++)
		report_settled(number(&in, i), (u64)sk, state);
	return 0;
}

static __always_inline void put_address(u8 *to, struct bpf_sock_addr *ctx, u16 family)
{
	if (family == AF_INET) {
		*(u32 *)to = ctx->user_ip4;
	} else {
		((u32 *)to)[0] = ctx->user_ip6[0];
		((u32 *)to)[1] = ctx->user_ip6[1];
		((u32 *)to)[2] = ctx->user_ip6[2];
		((u32 *)to)[3] = ctx->user_ip6[3];
	}
}

/* The address that an io_uring request connects to, sends to or binds. Its completion
 * reports the address, if there will be one (later). A worker's request may complete
 * without a result, so its address is reported at once. what is the kind and the hook. */
static __always_inline int on_uring_address(u32 session, struct counter *c, struct owner *o, struct address *a,
	u64 cookie, int later, u32 what)
{
	struct address *before = get_own(&uring_addresses, session, &cookie), copy = *a;

	if (before && before->pad != ADDRESS_TOLD &&
		(before->rport != a->rport || __builtin_memcmp(before->remote, a->remote, 16))) {
		count(c->fired);
		emit_peer(session, c, o, before, what >> 16, what);
	}
	copy.pad = later ? 0 : ADDRESS_TOLD;
	if (put_own(&uring_addresses, session, &cookie, &copy))
		later = 0;
	if (later)
		count(c->filtered);
	else
		emit_peer(session, c, o, a, what >> 16, what);
	return 1;
}

/* Whether a process is outside of the session. */
static __always_inline int outsider(u32 at, u32 tgid)
{
	struct member *m = bpf_map_lookup_elem(&members, &tgid);
	struct session *own = session(at);

	return own && (!m || !holds(&m->in, own->handle));
}

static __always_inline int on_peer(struct bpf_sock_addr *ctx, u16 family, u16 kind, u16 hook)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct pending now = {.set = SET_PEER}, *p;
	struct owner o = {};
	struct counter *c;
	u32 tid = t->pid;
	s32 at = home();
	u64 cookie;

	if (at < 0 || !(c = cell(at, hook)))
		return 1;
	count(c->fired);
	now.at.family = family;
	now.at.proto = ctx->protocol;
	now.at.type = ctx->type;
	now.at.rport = swap16(ctx->user_port);
	put_address(now.at.remote, ctx, family);
	if (outsider(at, t->tgid)) { /* it has a socket of ours, and its calls are not seen */
		emit_peer(at, c, &o, &now.at, kind, hook);
		return 1;
	}
	whose(&o, t);
	cookie = bpf_get_socket_cookie(ctx);
	put_own(&owners, at, &cookie, &o);
	p = get_pending(at, tid);
	if (t->flags & 0x10 /* PF_IO_WORKER */ || (p && p->uring)) {
		int later = p && p->uring == URING_TELLS;

		if (p)
			drop_pending(at, tid);
		return on_uring_address(at, c, &o, &now.at, cookie, later, kind << 16 | hook);
	}
	if (p && p->set == SET_PEER && (p->at.rport != now.at.rport || p->at.family != family ||
			    __builtin_memcmp(p->at.remote, now.at.remote, 16))) {
		/* Several peers in one call, as sendmmsg can have. */
		emit_peer(at, c, &o, &p->at, kind, hook);
	} else {
		count(c->filtered); /* the call's exit reports it */
	}
	if (put_pending(at, tid, &now))
		count(c->failed_reads);
	return 1;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx) { return on_peer(ctx, AF_INET, K_CONNECT, H_CONNECT4); }

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx) { return on_peer(ctx, AF_INET6, K_CONNECT, H_CONNECT6); }

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx) { return on_peer(ctx, AF_INET, K_SENDTO, H_SENDMSG4); }

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx) { return on_peer(ctx, AF_INET6, K_SENDTO, H_SENDMSG6); }

/* The address that a socket is to be bound to, even if that fails. */
static __always_inline int on_bind(struct bpf_sock_addr *ctx, u16 family, u16 hook)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct pending now = {.set = SET_OWN}, *p;
	struct counter *c;
	u32 tid = t->pid;
	s32 at = home();

	if (at < 0 || !(c = cell(at, hook)))
		return 1;
	count(c->fired);
	now.at.family = family;
	now.at.proto = ctx->protocol;
	now.at.type = ctx->type;
	now.at.lport = swap16(ctx->user_port);
	put_address(now.at.local, ctx, family);
	p = get_pending(at, tid);
	if (t->flags & 0x10 /* PF_IO_WORKER */ || (p && p->uring)) {
		int later = p && p->uring == URING_TELLS;
		struct owner o = {};

		if (p)
			drop_pending(at, tid);
		whose(&o, t);
		return on_uring_address(at, c, &o, &now.at, bpf_get_socket_cookie(ctx), later, K_BIND << 16 | hook);
	}
	count(c->filtered); /* the call's exit reports it */
	if (put_pending(at, tid, &now))
		count(c->failed_reads);
	return 1;
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx) { return on_bind(ctx, AF_INET, H_BIND4); }

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx) { return on_bind(ctx, AF_INET6, H_BIND6); }

#endif
