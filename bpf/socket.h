/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Socket calls: the peer and the own name from the socket itself, or from the
 * address that the cgroup hook saw during the call, and the call's result. */
#ifndef ASSAY_SOCKET_H
#define ASSAY_SOCKET_H
#include "foreign.h"
#include "pending.h"

/* Whether other hooks see all that a socket sends. Of IPv4 and IPv6 that are streams and datagrams of the protocols
 * that have such hooks: SOCK_PACKET is AF_PACKET by another name, and SCTP and L2TP have none. */
static __always_inline int ordinary(u32 family, u32 type, u32 proto)
{
	if (family == AF_UNIX)
		return 1;
	if ((family != AF_INET && family != AF_INET6) || ((type & 15) != SOCK_STREAM && (type & 15) != SOCK_DGRAM))
		return 0;
	switch (proto) {
	case 0:
	case 1:   /* ICMP */
	case 6:   /* TCP */
	case 17:  /* UDP */
	case 58:  /* ICMPv6 */
	case 136: /* UDP-Lite */
	case 262: /* MPTCP */
		return 1;
	}
	return 0;
}

/* Whether an internet socket is connected to nobody. TCP keeps the address of
 * its last peer but no port; others may have peers without ports. */
static __always_inline int no_peer(struct address *a)
{
	if (a->rport || (a->family != AF_INET && a->family != AF_INET6))
		return 0;
	return a->type == SOCK_STREAM || !(*(u64 *)&a->remote[0] | *(u64 *)&a->remote[8]);
}

static __always_inline struct sock *sock_of(u32 fd)
{
	u64 file = file_of(fd);
	struct file *f = (void *)file;
	struct socket *so;

	if (!f || type_of(file) != 0140000)
		return 0;
	so = BPF_CORE_READ(f, private_data);
	return BPF_CORE_READ(so, sk);
}

/* Reads a sockaddr from user memory: into a for internet addresses, as the remote one if
 * far is 1 and not 0, else the bytes behind the family to NAME_AT. Returns how many those
 * are. The kernel's copy of a unix socket's path does not say which address it is of, so it
 * counts only where the call has one. */
__noinline u32 user_address(struct scratch *s, u64 from, u32 len, struct address *a, u32 far)
{
	struct {
		u16 family, port;
		u32 v4;
		u8 v6[16], rest[8]; /* to 32 bytes */
	} u = {};
	u32 head;
	s32 copied;
	u8 *to;

	if (!s || !a)
		return 0;
	if (a->family == AF_UNIX && (row(s)->path != NOARG || row(s)->path2 != NOARG)) {
		copied = copy_note(s, NAME_AT, 0);
		if (copied > 0) {
			s->bits |= B_COPIED;
			s->how = mix(s->how, B_COPIED);
			return copied;
		}
	}
	head = len > 28 ? 28 : len;
	asm volatile("" : "+r"(head)); /* or the compiler proves the mask away */
	if (!from || len < 2 || bpf_probe_read_user(&u, head & 31, (void *)from))
		return 0;
	/* a part of an address is no address */
	if (u.family != AF_UNIX && len < (u.family == AF_INET ? 8 : u.family == AF_INET6 ? 24 : 16))
		return 0;
	to = a->local + (far & 1) * sizeof(a->local);
	s->bits |= B_FROM_USER;
	claim(s, from, len);
	a->family = u.family;
	if (u.family == AF_VSOCK) { /* struct sockaddr_vm: the port, then the machine */
		__builtin_memcpy(__builtin_assume_aligned(to, 4), u.v6, 4);
		__builtin_memcpy(__builtin_assume_aligned(to + 4, 4), &u.v4, 4);
	}
	if (u.family == AF_INET || u.family == AF_INET6) {
		if (u.family == AF_INET) {
			__builtin_memset(u.v6, 0, 16);
			__builtin_memcpy(u.v6, &u.v4, 4);
		}
		(&a->lport)[far & 1] = swap16(u.port);
		__builtin_memcpy(__builtin_assume_aligned(to, 4), u.v6, 16);
	}
	if (u.family != AF_UNIX || len <= 2)
		return 0;
	len -= 2;
	if (len > 108)
		len = 108;
	if (bpf_probe_read_user(&s->data[NAME_AT], len & 127, (void *)from + 2))
		return 0;
	s->data[NAME_AT + (len & 127)] = 0; /* it need not have one */
	return len;
}

/* Another event names the socket's peer: no further one is needed. */
__noinline int known(struct scratch *s, u32 fd, struct address *a)
{
	u64 file = file_of(fd);

	if (s && a && file && type_of(file) == 0140000 && !made_here(s->session, (u64)sock_in(file)))
		meet(s->session, file, a);
	return 0;
}

/* Whether a process outside of the session listened at the other end of a unix socket. The kernel makes that end in
 * the cgroup of the process that connects, so made_here cannot tell. */
__noinline int served_outside(u32 at, u64 sock)
{
	struct unix_sock *u = (void *)sock;
	struct sock *sk = (void *)sock, *end = BPF_CORE_READ(u, peer);
	struct session *own = session(at);
	struct member *m;
	u32 tgid;

	u = (void *)end;
	if (!own || !end || !BPF_CORE_READ(u, addr)) /* nobody can have listened there */
		return 0;
	tgid = process_with((u64)BPF_CORE_READ(sk, sk_peer_pid), TGID);
	m = bpf_map_lookup_elem(&members, &tgid); /* 0, once it has ended: nobody knows whose it was */
	return !m || !holds(&m->in, own->handle);
}

/* Whether what comes over a unix socket, or what is sent over it, which is the way, can have come from outside of
 * the session or gone there. Anybody can send a datagram to a socket that has a name, and each datagram can go to
 * another. */
__noinline int leads_outside(struct scratch *s, u64 sock, u32 way)
{
	struct unix_sock *u = (void *)sock;
	struct sock *sk = (void *)sock;
	u64 peer;

	if (!s || !u)
		return 1;
	peer = (u64)BPF_CORE_READ(u, peer);
	if (!made_here(s->session, sock) || !made_here(s->session, peer))
		return 1;
	if (BPF_CORE_READ(sk, sk_type) == SOCK_DGRAM)
		return way & PASSED_OUT || !peer || BPF_CORE_READ(u, addr);
	return served_outside(s->session, sock);
}

#define MAX_CONTROLS 1024 /* more do not fit in what the kernel takes, net.core.optmem_max */

/* Looks at one control message. */
static long control(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct control *c = &s->control;
	u64 len = 0, size = s->is32 ? 4 : 8, op;
	struct {
		u32 level, type; /* SOL_SOCKET, SCM_RIGHTS */
	} is = {};

	/* struct cmsghdr: its length first */
	if (c->at + size + sizeof(is) > c->end || bpf_probe_read_user(&len, s->is32 ? 4 : 8, (void *)c->at))
		return 1;
	if (len < size + sizeof(is) || bpf_probe_read_user(&is, sizeof(is), (void *)c->at + size))
		return 1;
	op = of_table(T_CONTROL, (u64)(u16)is.level << 32 | is.type);
	if (c->judged && look_up(op) != A_OWN) {
		c->other = op;
		return 1;
	}
	if (!c->judged && is.level == 1 && is.type == 1) {
		c->found = len;
		return 1;
	}
	c->at += (len + size - 1) & ~(size - 1);
	return 0;
}

/* Reports the control message in s->control that is not modelled, after the call that sent it was reported. */
__noinline int report_control(struct scratch *s)
{
	u64 op;

	if (!s)
		return 0;
	op = s->control.other;
	s->control.other = 0;
	return op && s->ret >= 0 ? report_operation(s, op) : 0;
}

/* Notes whether the message at msg passes descriptors, the way of enum passed, or has what is not modelled. */
__noinline int look_for_rights(struct scratch *s, u64 msg, u32 way)
{
	struct session *own;
	u64 size, len = 0;

	if (!s || !(own = session(s->session)) || !msg)
		return 0;
	size = s->is32 ? 4 : 8;
	s->control.at = s->control.found = 0;
	/* Of struct msghdr: control and its length. */
	bpf_probe_read_user(&s->control.at, s->is32 ? 4 : 8, (void *)msg + size * 4);
	bpf_probe_read_user(&len, s->is32 ? 4 : 8, (void *)msg + size * 5);
	if (!s->control.at)
		return 0;
	s->control.end = s->control.at + len;
	bpf_loop(MAX_CONTROLS, control, &s, 0);
	if (s->control.found)
		s->control.ways |= way;
	return 0;
}

#define MOST_RIGHTS 253 /* SCM_MAX_FD */

/* Notes that what came is not seen where it is used. */
static __always_inline void unseen(struct scratch *s)
{
	struct session *own = session(s->session);

	if (own)
		own->passed |= CAME_UNSEEN | END_OUTSIDE;
}

/* Others may accept what connects to a socket of theirs, although a process of the session listens. */
__noinline int note_listener(struct scratch *s, u64 sock)
{
	struct session *own;

	if (s && (own = session(s->session)) && !made_here(s->session, sock))
		own->passed |= END_OUTSIDE;
	return 0;
}

/* Notes how the descriptors that look_for_rights found were passed, over that socket. */
__noinline int note_rights(struct scratch *s, u64 sock)
{
	struct session *own;
	u32 ways;

	if (!s || !(own = session(s->session)))
		return 0;
	ways = s->control.ways;
	if (!ways)
		return 0;
	s->control.ways = 0;
	if (own->control && sock && own->control == FIELD(sock, struct sock, __sk_common.skc_cookie.counter))
		return 0; /* assay-run's own helper, and what it passes goes to assay-run */
	if (leads_outside(s, sock, ways))
		ways |= ways & PASSED_OUT ? WENT_OUTSIDE : CAME_FROM_OUTSIDE;
	if (ways & PASSED_IN && own->passed & END_OUTSIDE)
		ways |= CAME_FROM_OUTSIDE;
	own->passed |= ways;
	return ways;
}

/* Whether a file can exchange data with another host where no hook sees its peer: a tunnel, or a
 * ring of io_uring, which can hold sockets. */
__noinline int carries(u64 file)
{
	u64 name = 0;
	struct dentry *d;

	if (!file)
		return 1; /* somebody closed it */
	if (type_of(file) == 0020000)
		return FIELD(FIELD(file, struct file, f_inode), struct inode, i_rdev) == (10 << 20 | 200);
	d = FIELD(file, struct file, f_path.dentry);
	if (FIELD(FIELD(FIELD(d, struct dentry, d_inode), struct inode, i_sb), struct super_block, s_magic) != 0x09041934)
		return 0; /* ANON_INODE_FS_MAGIC */
	bpf_probe_read_kernel(&name, sizeof(name), FIELD(d, struct dentry, d_name.name));
	return name == *(u64 *)"[io_urin";
}

/* Whether a file lets its holder put descriptors into the process that it came from: a listener of seccomp. */
__noinline int takes_descriptors(u64 file)
{
	u64 name = 0;
	struct dentry *d;

	if (!file)
		return 1; /* somebody closed it */
	d = FIELD(file, struct file, f_path.dentry);
	bpf_probe_read_kernel(&name, sizeof(name), FIELD(d, struct dentry, d_name.name));
	return name == *(u64 *)"seccomp ";
}

/* Whether a file is a unix socket. */
__noinline int is_unix(u64 file)
{
	if (!file)
		return 1; /* somebody closed it */
	return type_of(file) == 0140000 && FIELD(sock_in(file), struct sock, __sk_common.skc_family) == AF_UNIX;
}

/* Looks at a descriptor that a message has. */
static long passed_descriptor(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct control *c = &s->control;
	u64 file = 0;
	u32 fd;

	if (!bpf_probe_read_user(&fd, sizeof(fd), (void *)c->at + (s->is32 ? 12 : 16) + i * 4))
		file = file_of(fd);
	if (c->ways & PASSED_OUT)
		c->ways |= (is_unix(file) ? END_OUTSIDE : 0) | (takes_descriptors(file) ? CAME_UNSEEN : 0);
	else
		c->ways |= carries(file) ? CAME_UNSEEN : 0;
	return 0;
}

/* Looks at the descriptors of the last message, which was passed that way. only: there was no other message. */
__noinline int look_at_rights(struct scratch *s, u32 way, u32 only)
{
	struct session *own;
	u32 head, n;

	if (!s || !(own = session(s->session)))
		return 0;
	head = s->is32 ? 12 : 16;
	n = s->control.found > head ? (s->control.found - head) / 4 : 0;
	if (n > MOST_RIGHTS || !only)
		own->passed |= way == PASSED_OUT ? END_OUTSIDE : CAME_UNSEEN;
	s->control.ways = way;
	bpf_loop(n > MOST_RIGHTS ? MOST_RIGHTS : n, passed_descriptor, &s, 0);
	own->passed |= s->control.ways;
	s->control.ways = 0;
	return 0;
}

static long received_message(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	u64 msg = s->arg[1] + (u64)i * (s->is32 ? 32 : 64); /* struct mmsghdr */

	s->control.judged = 0;
	look_for_rights(s, msg, PASSED_IN);
	return 0;
}

/* Whether another task or mapping can change the last message that was looked at, or its control messages. */
__noinline int changeable(struct scratch *s)
{
	if (!s)
		return 0;
	s->bits = 0;
	claim(s, s->arg[1], 64);
	claim(s, s->control.at, 1);
	return s->bits & B_CLAIMED;
}

/* recvmsg and recvmmsg, of interest for the descriptors that come with a message. */
__noinline int on_receive(struct scratch *s)
{
	struct sock *sk;
	u32 hidden = 0;

	if (!s)
		return 0;
	sk = sock_of(s->arg[0]);
	if (s->ret >= 0 && (!sk || FIELD(sk, struct sock, __sk_common.skc_family) == AF_UNIX)) {
		bpf_loop(row(s)->path2 != NOARG ? 1 : s->ret, received_message, &s, 0);
		if (!s->control.ways && changeable(s)) {
			s->control.ways = PASSED_IN;
			hidden = 1;
		}
		if (s->control.ways && note_rights(s, (u64)sk) & CAME_FROM_OUTSIDE)
			look_at_rights(s, PASSED_IN, row(s)->path2 != NOARG && !hidden);
	}
	filter(s);
	return used(s, s->arg[0]);
}

/* Reads of sockets. Of the options only TCP_ZEROCOPY_RECEIVE is one. */
__noinline int on_read(struct scratch *s)
{
	if (!s || (row(s)->keys && ((u32)s->arg[1] != 6 || (u32)s->arg[2] != 35)))
		return 0;
	s->hook = row(s)->hook;
	s->bits = s->name = s->about = 0;
	return used(s, s->arg[0]);
}

/* Requests have been submitted. What they left for hooks that did not follow is dropped. */
__noinline int on_uring_enter(struct scratch *s)
{
	if (!s)
		return 0;
	drop_pending(s->session, bpf_get_current_task_btf()->pid);
	filter(s);
	return report_wanted(s, 0, 0);
}

/* Reports the socket call in s->peer. */
__noinline int report_peer(struct scratch *s)
{
	struct peer *p;
	struct given g = {};
	struct path at;
	u32 end = 0, n;
	u64 h;

	if (!s)
		return 0;
	p = &s->peer;
	n = p->len;
	at = p->at;
	h = mix(p->a.rport, p->a.family);
	if (s->kind == K_BIND || s->kind == K_LISTEN)
		h = mix(mix(mix(h, p->a.lport), *(u64 *)&p->a.local[0]), *(u64 *)&p->a.local[8]);
	/* Each connection is an event of its own, with its port, by which the other end knows it. */
	if (s->kind == K_CONNECT && p->a.type == SOCK_STREAM && (!s->ret || s->ret == -EINPROGRESS))
		h = mix(h, p->a.lport);
	h = mix(mix(h, *(u64 *)&p->a.remote[0]), *(u64 *)&p->a.remote[8]);
	h = mix(h, (u64)p->a.type << 16 | p->a.proto);
	key_who(s, s->kind);
	if (p->walked) {
		key_file(s, (u64)at.mnt, (u64)at.dentry);
		s->key[2] = mix(s->key[2], h);
	} else {
		s->hash.a = s->hash.b = seed;
		hash_string(s, NAME_AT, n);
		s->key[2] = h;
		s->key[3] = place(s, &at);
		s->key[4] = s->hash.a;
		s->key[5] = s->hash.b;
	}
	if (s->bits & B_PENDING)
		s->has_slot = 0;
	else if (coalesce(s))
		return 0;
	begin_call(s);
	if (p->walked) {
		end = walk(s, 0, (u64)at.mnt, (u64)at.dentry);
		s->r.bits |= B_WALKED | s->walk.bits;
		s->r.seg[S_PATH] = end;
	} else if (at.dentry && s->data[NAME_AT]) {
		g.at = g.from = NAME_AT;
		g.len = n;
		g.base = at;
		root_of(bpf_get_current_task_btf(), &g.root);
		end = put_given(s, 0, S_PATH, ROOM_AT, &g);
	} else if (n) { /* abstract */
		s->r.seg[S_NAME] = n;
		bpf_probe_read_kernel(s->data, n & 127, &s->data[NAME_AT]);
		end = n;
	}
	s->r.seg[S_ENV] = sizeof(p->a);
	bpf_probe_read_kernel(&s->data[end & (DATA - 1)], sizeof(p->a), &p->a);
	emit_keyed(s, put_original(s, end + sizeof(p->a), S_TOOL, &g));
	return 0;
}

__noinline int on_socket(struct scratch *s)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u32 tid = t->pid, n = 0, kind, user_len = 0, walked = 0;
	struct address a = {};
	struct path at = {};
	struct pending *p;
	struct sock *sk;
	u64 user = 0;

	if (!s)
		return 0;
	kind = s->kind;
	if (kind == K_ACCEPT && s->ret == -11)
		return filter(s); /* nobody there yet */
	sk = kind == K_ACCEPT && s->ret < 0 ? 0 : sock_of(kind == K_ACCEPT ? s->ret : s->arg[0]);
	if (!sk) {
		s->how = mix(s->how, s->arg[0]);
		s->arg[4] = s->arg[5] = 0;
		return report_args(s);
	}
	addresses((u64)sk, &a);

	if (kind == K_SENDTO) {
		u64 flags = row(s)->path2 != NOARG ? s->arg[2] : s->arg[3];

		if (a.type == SOCK_STREAM && !(flags & 0x20000000)) { /* MSG_FASTOPEN */
			s->control.judged = 0;
			if (a.family == AF_UNIX && row(s)->path == NOARG)
				look_for_rights(s, s->arg[1], PASSED_OUT);
			return filter(s); /* bytes of a connection */
		}
		if (s->ret > 0 && (row(s)->path != NOARG || row(s)->path2 != NOARG))
			s->bytes = s->ret;
	}
	if (row(s)->path != NOARG) {
		user = arg(s, row(s)->path);
		user_len = arg(s, row(s)->path + 1);
	} else if (row(s)->path2 != NOARG || kind == K_SENDTO) { /* struct msghdr, sendmmsg's first */
		u64 msg = arg(s, row(s)->path2 != NOARG ? row(s)->path2 : 1);

		s->control.judged = a.family != AF_UNIX;
		look_for_rights(s, msg, PASSED_OUT);
		claim(s, msg, 16);
		if (s->is32) {
			bpf_probe_read_user(&user, 4, (void *)msg);
			bpf_probe_read_user(&user_len, 4, (void *)msg + 4);
		} else {
			bpf_probe_read_user(&user, 8, (void *)msg);
			bpf_probe_read_user(&user_len, 4, (void *)msg + 8);
		}
	}
	p = get_pending(s->session, tid);
	if (p && p->set == SET_PEER && (kind == K_CONNECT || kind == K_SENDTO)) {
		a.rport = p->at.rport;
		a.family = p->at.family;
		__builtin_memcpy(a.remote, p->at.remote, 16);
		drop_pending(s->session, tid);
	} else if (p && p->set == SET_OWN && kind == K_BIND) {
		if (s->ret < 0) { /* else the socket knows, and which port it got */
			a.lport = p->at.lport;
			__builtin_memcpy(a.local, p->at.local, 16);
		}
		drop_pending(s->session, tid);
	} else if (kind == K_CONNECT && s->ret >= 0 && no_peer(&a)) {
		a.family = 0; /* AF_UNSPEC was asked for */
	} else if (a.family == AF_UNIX && (kind != K_SENDTO || !user) && s->ret >= 0) {
		struct unix_sock *u = (void *)sk;

		if (kind == K_CONNECT || kind == K_SENDTO)
			u = (void *)BPF_CORE_READ(u, peer);
		if (u)
			n = unix_name(s, (u64)u, &at);
		walked = at.dentry != 0;
	} else if (user && (s->ret < 0 || kind == K_SENDTO || a.family == AF_VSOCK)) {
		if (kind == K_BIND) { /* what the socket has is not what was asked for */
			a.lport = 0;
			__builtin_memset(a.local, 0, sizeof(a.local));
		}
		n = user_address(s, user, user_len, &a, kind != K_BIND);
		if (n && s->data[NAME_AT] == '/')
			root_of(t, &at);
		else if (n)
			here(t, &at);
	}

	if (s->ret >= 0 && kind == K_LISTEN && a.family == AF_UNIX)
		note_listener(s, (u64)sk);
	if (s->ret >= 0 && (kind == K_ACCEPT || kind == K_CONNECT))
		known(s, kind == K_ACCEPT ? s->ret : s->arg[0], &a);
	s->arg[4] = s->bytes;
	s->arg[5] = 0;
	s->peer.a = a;
	s->peer.at = at;
	s->peer.len = n;
	s->peer.walked = walked;
	return report_peer(s);
}

/* A message of sendmmsg after the first, which on_socket reports. The peers of
 * internet sockets are those that the cgroup hook saw. */
static long further_message(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct sock *sk = sock_of(s->arg[0]);
	struct peer *p = &s->peer;
	u64 user = 0, word = s->is32 ? 4 : 8, msg = s->arg[1] + (i + 1) * 8 * word; /* struct mmsghdr */
	u32 len = 0;

	if (!sk)
		return 1;
	__builtin_memset(p, 0, sizeof(*p));
	addresses((u64)sk, &p->a);
	s->control.judged = p->a.family != AF_UNIX;
	if (s->control.judged)
		look_for_rights(s, msg, PASSED_OUT);
	if (p->a.family == AF_INET || p->a.family == AF_INET6)
		return 0;
	if (p->a.type == SOCK_STREAM)
		return 1;
	if (bpf_probe_read_user(&user, s->is32 ? 4 : 8, (void *)msg) || bpf_probe_read_user(&len, 4, (void *)msg + word)) {
		count_loss(s->session, s->hook);
		return 0;
	}
	if (!s->control.judged)
		look_for_rights(s, msg, PASSED_OUT);
	if (!user) /* to the socket's own peer */
		return 0;
	if (count_fired(s->session, s->hook))
		return 1;
	p->len = user_address(s, user, len, &p->a, 1);
	if (p->len && s->data[NAME_AT] == '/')
		root_of(bpf_get_current_task_btf(), &p->at);
	else if (p->len)
		here(bpf_get_current_task_btf(), &p->at);
	report_peer(s);
	return 0;
}

#endif
