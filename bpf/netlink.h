/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel is asked for in memory that the caller could change at any time: messages of netlink, and the
 * options of cgroup hierarchies. It is noted where the kernel shows what it took, and reported when the call ends. */
#ifndef ASSAY_NETLINK_H
#define ASSAY_NETLINK_H
#include "model.h"

/* Families of netlink. */
#define NETLINK_ROUTE 0
#define NETLINK_AUDIT 9
#define NETLINK_NETFILTER 12
#define NETLINK_GENERIC 16

#define RTM_NEWLINK 16
#define RTM_SETLINK 19
#define RTM_NEWADDR 20
#define NLM_F_CREATE 0x400
#define NO_ATTRIBUTES 32 /* a struct nlmsghdr and a struct ifinfomsg */
#define LOOPBACK 1            /* the index of the loopback device in each network */
#define OF_LOOPBACK (1 << 16) /* in the operation of a message about it */
#define UNSEEN 0xffffffffULL  /* a message that the kernel was not seen to read */
#define MOST_MESSAGES (1 << 20)

static __always_inline u64 of_table(u32 table, u64 op)
{
	return (u64)table << 56 | op;
}

/* Notes an operation that is not the caller's own, for the exit of the call. UNSEEN stands for all that found no
 * room. */
static __always_inline void note_operation(struct wanted *a, u64 op)
{
	u32 i;

#pragma unroll
	for (i = 0; i < WANTED; i++)
		if (i < a->n && a->op[i] == op)
			return;
	if (a->n >= WANTED)
		a->op[WANTED - 1] = of_table(T_NETLINK, UNSEEN);
	else
		a->op[a->n++ & (WANTED - 1)] = op;
}

/* Looks at one message. */
static long message(u32 i, void *arg)
{
	struct wanted *a = &(*(struct notes **)arg)->wanted;
	struct {
		u32 len; /* struct nlmsghdr */
		u16 type, flags;
		u32 seq, pid;
		u32 first, index; /* of struct ifinfomsg and of struct ifaddrmsg */
	} m = {};
	u64 rest = a->end - a->at, op;

	if (bpf_probe_read_kernel(&m, rest < 20 ? 16 : rest < 24 ? 20 : 24, (void *)a->at) || m.len < 16 || m.len > rest)
		return 1;
	op = m.type;
	if (a->protocol == NETLINK_GENERIC)
		op |= (m.first & 255) << 16; /* struct genlmsghdr: the command */
	if (a->protocol == NETLINK_AUDIT && ((op >= 1100 && op < 1200) || (op >= 2100 && op < 3000)))
		op = 1100; /* from programs, for the log */
	if (a->protocol == NETLINK_ROUTE && (op == RTM_NEWLINK || op == RTM_SETLINK || op == RTM_NEWADDR) &&
		(m.index == LOOPBACK || (!m.index && m.len == NO_ATTRIBUTES && !(m.flags & NLM_F_CREATE))))
		op |= OF_LOOPBACK; /* or of none, with which ip asks whether the kernel knows the message */
	op |= of_table(T_NETLINK, (u64)a->protocol << 32);
	if (look_up(op) != A_OWN && !a->refused)
		note_operation(a, op);
	a->at += (m.len + 3) & ~3U;
	return a->at + 16 > a->end;
}

/* Looks at the messages of a packet to the kernel's socket. */
__noinline int look_at_messages(struct notes *kept, u64 skb, u64 to)
{
	u64 n;

	if (!kept)
		return 0;
	kept->wanted.seen++;
	kept->wanted.protocol = FIELD(to, struct sock, sk_protocol);
	kept->wanted.refused = (kept->wanted.protocol == NETLINK_ROUTE || kept->wanted.protocol == NETLINK_NETFILTER) &&
		!administers(to);
	kept->wanted.at = (u64)FIELD(skb, struct sk_buff, head); /* the kernel has gone on from there by now */
	kept->wanted.end = kept->wanted.at + FIELD(skb, struct sk_buff, tail);
	n = (kept->wanted.end - kept->wanted.at) / 16;
	if (n > MOST_MESSAGES)
		note_operation(&kept->wanted, of_table(T_NETLINK, UNSEEN));
	else
		bpf_loop(n, message, &kept, 0);
	return 0;
}

/* What is kept for the exit of the current task's call; 0 if the task is of no session. */
static __always_inline struct notes *notes_here(void)
{
	struct scope *in = scope_here();

	if (!in || !in->n)
		return 0;
	return bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Where the exit of the current call does not report what was noted, it counts for the sessions as a whole. */
__noinline int noted_beside(struct notes *kept)
{
	const u32 tell = 1 << P_SOCKET | 1 << P_WRITE | 1 << P_AIO | 1 << P_URING | 1 << P_PATH | 1 << P_ARGS;
	struct session *own;
	struct scope *in;
	u32 i, call;

	if (!kept || tell >> (handler_here(bpf_get_current_task_btf(), &call) & 31) & 1)
		return 0;
	in = scope_here();
	for (i = 0; in && kept->wanted.n && i < DEPTH && i < in->n; i++)
		if ((own = session(number(in, i))))
			own->passed |= ASKED_BESIDE;
	kept->wanted.seen = kept->wanted.n = 0;
	return 0;
}

/* The kernel is done with a packet. Of those that were sent to a netlink socket of its own it has read what they ask
 * for by now, unless the answer is given in parts. */
SEC("raw_tp/consume_skb")
int BPF_PROG(consumed, u64 skb)
{
	u64 to = (u64)FIELD(skb, struct sk_buff, sk);
	struct notes *kept;

	if (!to || FIELD(to, struct sock, __sk_common.skc_family) != AF_NETLINK ||
		!FIELD(to, struct netlink_sock, netlink_rcv))
		return 0;
	kept = notes_here();
	if (!kept)
		return 0; /* and a message is missed when the call ends */
	look_at_messages(kept, skb, to);
	return noted_beside(kept);
}

/* A hierarchy of cgroups of version 1 was made, or its options were changed: they can name a program. */
static __always_inline int on_hierarchy(void)
{
	struct notes *kept = notes_here();

	if (!kept)
		return 0;
	note_operation(&kept->wanted, of_table(T_HIERARCHY, 1));
	return noted_beside(kept);
}

SEC("raw_tp/cgroup_setup_root")
int BPF_PROG(rooted, u64 root) { return on_hierarchy(); }

SEC("raw_tp/cgroup_remount")
int BPF_PROG(remounted, u64 root) { return on_hierarchy(); }

/* Forgets what was noted during the call. */
__noinline int forget_wanted(void)
{
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);

	if (kept)
		kept->wanted.seen = kept->wanted.n = 0;
	return 0;
}

static __always_inline struct sock *netlink_of(u64 file)
{
	struct sock *sk = file && type_of(file) == 0140000 ? sock_in(file) : 0;

	return sk && FIELD(sk, struct sock, __sk_common.skc_family) == AF_NETLINK ? sk : 0;
}

/* Reports what was noted during the call, and whether the kernel was not seen to read what was sent over a netlink
 * socket, if it is one: how many messages that were. */
__noinline int report_wanted(struct scratch *s, u64 sock, u32 sent)
{
	struct netlink_sock *nl = (void *)sock;
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);
	u32 i;

	if (!s)
		return 0;
	if (nl && sent && kept && FIELD(nl, struct netlink_sock, cb_running))
		/* The kernel keeps the packet for the rest of the answer. All families have one socket of the kernel's. What
		 * was seen may be of an earlier call, which took the end of an answer with splice. */
		look_at_messages(kept, (u64)FIELD(nl, struct netlink_sock, cb.skb), (u64)nl);
	if (nl && sent && (!kept || kept->wanted.seen < sent))
		report_operation(s, of_table(T_NETLINK, UNSEEN));
	if (!kept)
		return 0;
#pragma unroll
	for (i = 0; i < WANTED; i++)
		if (i < kept->wanted.n)
			report_operation(s, kept->wanted.op[i]);
	s->told = 1; /* forgotten when all sessions have been told */
	return 0;
}

#endif
