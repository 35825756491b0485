/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Sockets that a session did not make, but uses: whose they are, and with whom they are
 * connected, from the socket itself. */
#ifndef ASSAY_FOREIGN_H
#define ASSAY_FOREIGN_H
#include "report.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define AF_VSOCK 40
#define SOCK_STREAM 1
#define EINPROGRESS 115
#define SOCK_DGRAM 2

static __always_inline u32 type_of(u64 file)
{
	return FIELD(FIELD(file, struct file, f_inode), struct inode, i_mode) & 0170000;
}

static __always_inline u16 swap16(u16 v)
{
	return __builtin_bswap16(v);
}

/* Local and remote address of an internet socket. */
__noinline int addresses(u64 sock, struct address *a)
{
	struct sock *sk = (void *)sock;

	if (!a)
		return 0;
	a->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	a->type = BPF_CORE_READ(sk, sk_type);
	a->proto = BPF_CORE_READ(sk, sk_protocol);
	if (a->family != AF_INET && a->family != AF_INET6)
		return 0;
	a->lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	a->rport = swap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (a->family == AF_INET) {
		bpf_core_read(a->local, 4, &sk->__sk_common.skc_rcv_saddr);
		bpf_core_read(a->remote, 4, &sk->__sk_common.skc_daddr);
	} else {
		bpf_core_read(a->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(a->remote, 16, &sk->__sk_common.skc_v6_daddr);
	}
	return 0;
}

/* A unix socket's name: its path where it has one in the file system, else the
 * bound bytes at NAME_AT. Returns how many those are. */
__noinline u32 unix_name(struct scratch *s, u64 sock, struct path *p)
{
	struct unix_sock *u = (void *)sock;
	struct unix_address *a = BPF_CORE_READ(u, addr);
	int len;

	if (!s || !p)
		return 0;
	bpf_core_read(p, sizeof(*p), &u->path);
	if (p->dentry || !a)
		return 0;
	len = BPF_CORE_READ(a, len) - 2;
	if (len <= 0)
		return 0;
	if (len > 108)
		len = 108;
	if (bpf_probe_read_kernel(&s->data[NAME_AT], len & 127,
		(void *)a + bpf_core_field_offset(struct unix_address, name) + 2))
		return 0;
	return len;
}

/* Whether a socket's file was made in the cgroup that the current task is in, and so by every session of the
 * task's: most are, and no more is to be known of them. */
static __always_inline int made_beside(u64 file)
{
	struct socket *so = FIELD(file, struct file, private_data);
	struct sock *sk = so ? FIELD(so, struct socket, sk) : 0;

	return sk && FIELD(sk, struct sock, sk_cgrp_data.cgroup) ==
		FIELD(FIELD(bpf_get_current_task_btf(), struct task_struct, cgroups), struct css_set, dfl_cgrp);
}

/* Sockets of others that a session has met, by themselves and their peers. */
OF_SESSIONS(met, BPF_MAP_TYPE_LRU_HASH, 4096, 0, 8, 8);

/* Whether a process of the session made the socket: the kernel keeps the cgroup that it was made in. */
__noinline int made_here(u32 at, u64 sock)
{
	struct sock *sk = (void *)sock;
	struct session *own = session(at);
	struct cgroup *cg;
	struct scope *in;

	if (!sk || !own)
		return 1;
	cg = FIELD(sk, struct sock, sk_cgrp_data.cgroup);
	if (!cg)
		return 0;
	in = scope_of(FIELD(FIELD(cg, struct cgroup, kn), struct kernfs_node, id), (u64)cg);
	return in ? holds(in, own->handle) : 0;
}

/* The socket of a file that is one. */
static __always_inline struct sock *sock_in(u64 file)
{
	struct socket *so = FIELD(file, struct file, private_data);

	return so ? FIELD(so, struct socket, sk) : 0;
}

/* Whether the session has met the socket with that peer. From now on it has. */
__noinline int meet(u32 at, u64 file, struct address *a)
{
	struct file *f = (void *)file;
	u64 h = (u64)BPF_CORE_READ(f, f_inode, i_ino) ^ (u64)BPF_CORE_READ(f, private_data) << 8, one = 1;

	if (!a)
		return 1;
	h = mix(mix(mix(h, a->rport), *(u64 *)&a->remote[0]), *(u64 *)&a->remote[8]);
	if (get_own(&met, at, &h))
		return 1;
	put_own(&met, at, &h, &one);
	return 0;
}

/* Reports the use of a socket that the session did not make. */
__noinline int report_foreign(struct scratch *s, u64 file)
{
	struct peer *p;
	struct sock *sk;
	struct unix_sock *u, *peer;
	u32 end = 0;

	if (!s)
		return 0;
	sk = sock_in(file);
	if (!sk || made_here(s->session, (u64)sk))
		return 0;
	p = &s->peer;
	__builtin_memset(p, 0, sizeof(*p));
	addresses((u64)sk, &p->a);
	if (meet(s->session, file, &p->a) || count_fired(s->session, s->hook))
		return 0;
	if (p->a.family == AF_UNIX) {
		u = (void *)sk;
		peer = (void *)BPF_CORE_READ(u, peer);
		if (peer)
			p->len = unix_name(s, (u64)peer, &p->at);
		if (!p->len && !p->at.dentry)
			p->len = unix_name(s, (u64)u, &p->at);
		p->walked = p->at.dentry != 0;
	}
	s->kind = K_FOREIGN_SOCKET;
	s->bits = (s->bits & B_URING) | B_NO_RESULT;
	__builtin_memset(s->arg, 0, sizeof(s->arg));
	begin_call(s);
	s->r.t = bpf_ktime_get_boot_ns(); /* a read may have begun before its process joined the run */
	if (p->walked) {
		end = walk(s, 0, (u64)p->at.mnt, (u64)p->at.dentry);
		s->r.bits |= B_WALKED | s->walk.bits;
		s->r.seg[S_PATH] = end;
	} else if (p->len) {
		end = s->r.seg[S_NAME] = p->len & 127;
		bpf_probe_read_kernel(s->data, p->len & 127, &s->data[NAME_AT]);
	}
	s->r.seg[S_ENV] = sizeof(p->a);
	bpf_probe_read_kernel(&s->data[end & (DATA - 1)], sizeof(p->a), &p->a);
	emit(s, end + sizeof(p->a));
	return 0;
}

/* report_foreign of a descriptor that a call used with success, after the call itself was dealt with. */
static __always_inline int used(struct scratch *s, u32 fd)
{
	u64 file;

	if (!s || s->ret < 0)
		return 0;
	file = file_of(fd);
	if (file && type_of(file) == 0140000 && !made_beside(file))
		report_foreign(s, file);
	return 0;
}

#endif
