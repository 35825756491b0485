//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Programs on the cgroup of a sandboxed command, which decide by the address that a
 * socket is to connect, send or bind to. They need no cooperation from the program. */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* User space sets these before it loads the programs. */
const volatile __u8 loopback;  /* loopback addresses may be reached */
const volatile __u8 bind_any;  /* every address may be bound */
const volatile __u8 set_errno; /* the kernel lets a program choose the error */

enum hook { CONNECT4, CONNECT6, SENDMSG4, SENDMSG6, BIND4, BIND6, HOOKS };

struct denial {
	__u64 t; /* CLOCK_BOOTTIME, ns */
	__u8 addr[16];
	__u16 port;
	__u8 hook;
	__u8 family; /* 4 or 6 */
	__u8 pad[4];
};

struct tally {
	__u64 denied;
	__u64 lost; /* of those, the denials that the ring had no room for */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOOKS);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} denials SEC(".maps");

/* Counts the denial before it reports it. */
static __always_inline int deny(struct bpf_sock_addr *ctx, __u32 hook, __u8 family, __s32 error)
{
	struct tally *n = bpf_map_lookup_elem(&tallies, &hook);
	struct denial *d;

	if (n)
		__sync_fetch_and_add(&n->denied, 1);
	d = bpf_ringbuf_reserve(&denials, sizeof(*d), 0);
	if (d) {
		__builtin_memset(d, 0, sizeof(*d));
		d->t = bpf_ktime_get_boot_ns();
		d->port = bpf_ntohs(ctx->user_port);
		d->hook = hook;
		d->family = family;
		if (family == 4) {
			*(__u32 *)d->addr = ctx->user_ip4;
		} else {
			((__u32 *)d->addr)[0] = ctx->user_ip6[0];
			((__u32 *)d->addr)[1] = ctx->user_ip6[1];
			((__u32 *)d->addr)[2] = ctx->user_ip6[2];
			((__u32 *)d->addr)[3] = ctx->user_ip6[3];
		}
		bpf_ringbuf_submit(d, 0);
	} else if (n) {
		__sync_fetch_and_add(&n->lost, 1);
	}
	if (set_errno)
		bpf_set_retval(-error); /* as without a route; EPERM elsewhere */
	return 0;
}

/* 127.0.0.0/8, and 0.0.0.0 where wildcard, which connect(2) takes for loopback. */
static __always_inline int local4(__u32 addr, int wildcard)
{
	return (addr & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || (wildcard && !addr);
}

/* ::1, :: where wildcard, and IPv4 addresses in ::ffff:0:0/96. */
static __always_inline int local6(struct bpf_sock_addr *ctx, int wildcard)
{
	__u32 a = ctx->user_ip6[0], b = ctx->user_ip6[1], c = ctx->user_ip6[2], d = ctx->user_ip6[3];

	if (a || b)
		return 0;
	if (c == bpf_htonl(0xffff))
		return local4(d, wildcard);
	return !c && (d == bpf_htonl(1) || (wildcard && !d));
}

static __always_inline int reach4(struct bpf_sock_addr *ctx, __u32 hook)
{
	return loopback && local4(ctx->user_ip4, 1) ? 1 : deny(ctx, hook, 4, ENETUNREACH);
}

static __always_inline int reach6(struct bpf_sock_addr *ctx, __u32 hook)
{
	return loopback && local6(ctx, 1) ? 1 : deny(ctx, hook, 6, ENETUNREACH);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx) { return reach4(ctx, CONNECT4); }

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx) { return reach6(ctx, CONNECT6); }

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx) { return reach4(ctx, SENDMSG4); }

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx) { return reach6(ctx, SENDMSG6); }

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	return bind_any || (loopback && local4(ctx->user_ip4, 0)) ? 1 : deny(ctx, BIND4, 4, EADDRNOTAVAIL);
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	return bind_any || (loopback && local6(ctx, 0)) ? 1 : deny(ctx, BIND6, 6, EADDRNOTAVAIL);
}

/* For bpf2go, which finds types in what the object declares. */
struct denial *const unused_denial __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";
