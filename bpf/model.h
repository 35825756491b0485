/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The account of what a call did: whether it is the caller's own affair, recorded, or neither. User space fills
 * in the tables, from the one that package kernel has. */
#ifndef ASSAY_MODEL_H
#define ASSAY_MODEL_H
#include "foreign.h"

volatile const struct operation operations[OPERATIONS];

/* The small operations that are the caller's own, a bit for each: most calls need no look-up. By table, and of
 * setsockopt by level. */
volatile const u64 own_operations[T_COUNT * WORD_BITS];

/* Whether a call is the caller's own affair at first sight. A function of its own, as look_up. */
__noinline int own_at_sight(u32 table, u64 first, u64 second, u64 third)
{
	u32 level = table == T_SETSOCKOPT ? second : 0;
	u32 op = table == T_SETSOCKOPT ? third : table == T_FCNTL ? second : first, at = table * WORD_BITS + level;

	if (level >= WORD_BITS || op >= WORD_BITS || at >= T_COUNT * WORD_BITS)
		return 0;
	return own_operations[at] >> op & 1;
}

/* What a descriptor is, by its inode. */
static __always_inline u32 object_kind(u32 fd)
{
	u64 file = file_of(fd);
	struct inode *i = file ? FIELD(file, struct file, f_inode) : 0;
	u32 major;

	if (!i)
		return OK_OTHER;
	switch (FIELD(i, struct inode, i_mode) & 0170000) {
	case 0100000:
	case 0040000:
		return OK_FILE;
	case 0010000:
		return OK_FIFO;
	case 0140000:
		return OK_SOCKET;
	case 0060000:
		return OK_BLOCK;
	case 0020000:
		major = BPF_CORE_READ(i, i_rdev) >> 20;
		return major == 4 || major == 5 || (major >= 136 && major < 144) ? OK_TERMINAL : OK_CHARACTER;
	}
	return OK_OTHER;
}

/* What a call of a table does: the table, the kind of object, and the operation. Arguments that are ints have
 * arbitrary upper halves. */
static __always_inline u64 operation(u32 table, u64 first, u64 second, u64 third)
{
	u64 key = (u64)table << 56;

	switch (table) {
	case T_IOCTL:
		return key | (u64)object_kind(first) << 48 | (u32)second;
	case T_SETSOCKOPT: /* level and option */
		return key | (u64)(u16)second << 32 | (u32)third | ((u32)second >> 16 ? 1ULL << 48 : 0);
	case T_FCNTL:
		return key | (u32)second;
	case T_URING_REGISTER: /* the upper bit says that the ring is registered */
		return key | ((u32)second & 0x7fffffff);
	}
	return key | (u32)first;
}

/* Looks a key up: a function of its own, as the verifier would go through it for each caller. */
__noinline u32 look_up(u64 key)
{
	u32 at = 0, step, next;
	u64 have;

#pragma unroll
	for (step = OPERATIONS / 2; step; step >>= 1) {
		next = at + step;
		asm volatile("" : "+r"(next)); /* or the compiler proves the mask away */
		have = operations[next & (OPERATIONS - 1)].key;
		at += step & (u32)((s64)(have - 1 - key) >> 63); /* if have <= key */
	}
	asm volatile("" : "+r"(at));
	return operations[at & (OPERATIONS - 1)].key == key ? operations[at & (OPERATIONS - 1)].account : A_UNLISTED;
}

/* The account of the call in row sel. */
__noinline u32 account_of(u32 sel, u64 first, u64 second, u64 third)
{
	volatile const struct syscall *d = &syscalls[sel & (2 * NSYS - 1)];
	u32 account;
	u64 key;

	if (!d->table)
		return d->account;
	key = operation(d->table, first, second, third);
	account = look_up(key);
	if (account == A_UNLISTED && d->table == T_IOCTL)
		account = look_up(key & ~(255ULL << 48));
	return account;
}

#define CAP_NET_ADMIN 12

/* Whether the current task may change the network that a socket is in. */
__noinline int administers(u64 sock)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct sock *sk = (void *)sock;
	const struct cred *cred = BPF_CORE_READ(t, cred);
	struct user_namespace *own = BPF_CORE_READ(cred, user_ns);
	struct user_namespace *of = BPF_CORE_READ(sk, __sk_common.skc_net.net, user_ns);
	u32 caps = 0;

	bpf_core_read(&caps, sizeof(caps), &cred->cap_effective);
	if (own == of)
		return caps >> CAP_NET_ADMIN & 1;
	return BPF_CORE_READ(of, level) > BPF_CORE_READ(own, level); /* its owner may, nobody in a namespace below */
}

#define SIOCETHTOOL 0x8946

/* Whether an ioctl can do nothing, as the task lacks the privilege for what changes something. */
static __always_inline int only_asks(struct scratch *s)
{
	u64 file;

	if (row(s)->table != T_IOCTL || (u32)s->arg[1] != SIOCETHTOOL)
		return 0;
	file = file_of(s->arg[0]);
	return file && type_of(file) == 0140000 && !administers((u64)sock_in(file));
}

/* Reports an operation, with its table, or 0 for a call that has none, that is neither the caller's own affair nor
 * recorded. */
__noinline int report_operation(struct scratch *s, u64 op)
{
	if (!s)
		return 0;
	s->kind = K_UNMODELLED;
	s->hook = H_UNMODELLED;
	s->bits = s->about = 0;
	if (count_fired(s->session, s->hook))
		return 0;
	s->arg[0] = s->nr;
	s->arg[1] = op;
	s->how = mix(s->arg[0], op);
	s->recorded = 3;
	return report_args(s);
}

/* Reports a call, or an operation of it. A call that failed did nothing, but of one that has no row that is not
 * known. */
__noinline int on_unmodelled(struct scratch *s)
{
	u32 table;

	if (!s)
		return 0;
	if ((s->ret < 0 && row(s)->prog != P_NONE) || only_asks(s))
		return 0;
	table = row(s)->table;
	return report_operation(s, table ? operation(table, s->arg[0], s->arg[1], s->arg[2]) : 0);
}

#endif
