/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Packets of the session's sockets. The payload is kept only of DNS and of TLS
 * ClientHellos. */
#ifndef ASSAY_PACKETS_H
#define ASSAY_PACKETS_H
#include "cgroup.h"

OF_SESSIONS(endpoints, BPF_MAP_TYPE_HASH, 8192, BPF_F_NO_PREALLOC, sizeof(struct endpoint), sizeof(struct traffic));

#define SMALL 576
#define LARGE 2048

static __always_inline void emit_payload(u32 session_at, struct __sk_buff *skb, struct counter *c,
	struct address *a, u32 off, u32 len,
					 u16 kind, u16 hook, u32 bits, u32 size)
{
	struct {
		struct net_record n;
		u8 payload[LARGE];
	} *out;
	u64 cookie = bpf_get_socket_cookie(skb);
	struct owner *o = owner_of(session_at, cookie);
	struct session *own = session(session_at);
	void *ring = ring_of(session_at, L_FILES);
	s64 keep = len;

	if (!own || !ring) {
		count(c->dropped);
		return;
	}
	out = bpf_ringbuf_reserve(ring, sizeof(struct net_record) + size, 0);
	if (!out) {
		__sync_fetch_and_add(&own->net_ids, 1);
		count(c->dropped);
		return;
	}
	__builtin_memset(&out->n, 0, sizeof(out->n));
	out->n.r.t = bpf_ktime_get_boot_ns();
	number_net(&out->n.r, own);
	out->n.r.kind = kind;
	out->n.r.hook = hook;
	if (o) {
		out->n.r.start = o->start;
		out->n.r.tgid = o->tgid;
		out->n.r.tid = o->tid;
		out->n.r.ppid = o->ppid;
	}
	out->n.r.cgroup = bpf_skb_cgroup_id(skb);
	if (keep > (s64)size) {
		keep = size;
		bits |= B_TRUNCATED;
	}
	/* S_NAME comes before S_ENV, where the address stands; here the address
	 * is first, so B_ADDRESS_FIRST tells. */
	out->n.r.bits = bits | B_ADDRESS_FIRST;
	out->n.r.arg[0] = len;
	out->n.a = *a;
	/* Compared once more, one bound at a time, hidden from the compiler: older
	 * verifiers need that. */
	asm volatile("" : "+r"(keep));
	if (keep > (s64)size)
		keep = size;
	asm volatile("" : "+r"(keep));
	if (keep < 1 || bpf_skb_load_bytes(skb, off, ((u8 *)out) + sizeof(struct net_record), keep)) {
		out->n.r.bits |= B_FAILED_READ;
		count(c->failed_reads);
		keep = 0;
	}
	out->n.r.seg[S_NAME] = keep;
	out->n.r.seg[S_ENV] = sizeof(out->n.a);
	bpf_ringbuf_submit(out, BPF_RB_NO_WAKEUP);
	count(c->emitted);
}

static __always_inline int on_packet(struct __sk_buff *skb, u16 hook, int in)
{
	struct counter *c;
	struct address a = {};
	struct endpoint e = {};
	struct traffic *t = 0, first = {};
	s32 at = home();
	void *own;
	u64 now = bpf_ktime_get_boot_ns();
	u32 off, len;
	u16 ports[2];
	u8 head[6];
	u8 b;
	int options;
	struct session *told;

	if (at < 0 || !(c = cell(at, hook)))
		return 1;
	count(c->fired);
	if (skb->protocol == swap16(0x0800)) {
		u8 ip[20];

		if (bpf_skb_load_bytes(skb, 0, ip, sizeof(ip)))
			goto filtered;
		a.family = AF_INET;
		a.proto = ip[9];
		off = (ip[0] & 15) * 4;
		options = off > sizeof(ip);
		__builtin_memcpy(in ? a.remote : a.local, ip + 12, 4);
		__builtin_memcpy(in ? a.local : a.remote, ip + 16, 4);
	} else if (skb->protocol == swap16(0x86dd)) {
		u8 ip[40];

		if (bpf_skb_load_bytes(skb, 0, ip, sizeof(ip)))
			goto filtered;
		a.family = AF_INET6;
		a.proto = ip[6];
		off = 40;
		options = ip[6] == 0 || ip[6] == 43 || ip[6] == 60; /* of each hop, a route, of the destination */
		__builtin_memcpy(in ? a.remote : a.local, ip + 8, 16);
		__builtin_memcpy(in ? a.local : a.remote, ip + 24, 16);
	} else {
		goto filtered;
	}
	if (!in && options && (told = session(at)))
		told->passed |= PACKET_OPTIONS;
	if (a.proto == 6 || a.proto == 17) {
		if (bpf_skb_load_bytes(skb, off, ports, 4))
			goto filtered;
		a.lport = swap16(in ? ports[1] : ports[0]);
		a.rport = swap16(in ? ports[0] : ports[1]);
		a.type = a.proto == 6 ? 1 : 2;
		if (a.proto == 17) {
			off += 8;
		} else {
			if (bpf_skb_load_bytes(skb, off + 12, &b, 1))
				goto filtered;
			off += (b >> 4) * 4;
		}
	}
	len = skb->len > off ? skb->len - off : 0;

	e.family = a.family;
	e.proto = a.proto;
	e.port = a.rport;
	__builtin_memcpy(e.addr, a.remote, 16);
	own = bpf_map_lookup_elem(&endpoints, &at);
	if (own)
		t = bpf_map_lookup_elem(own, &e);
	if (own && !t) {
		first.first = now;
		first.cgroup = bpf_skb_cgroup_id(skb);
		bpf_map_update_elem(own, &e, &first, BPF_NOEXIST);
		t = bpf_map_lookup_elem(own, &e);
	}
	if (t) {
		__sync_fetch_and_add(in ? &t->in : &t->out, len);
		__sync_fetch_and_add(&t->packets, 1);
		t->last = now;
	} else {
		count(c->failed_reads); /* more endpoints than there is room for */
	}
	if (len < 12)
		goto filtered;
	if (a.rport == 53 || (in && a.lport == 53)) {
		if (len <= SMALL)
			emit_payload(at, skb, c, &a, off, len, K_DNS, hook, in ? B_INGRESS : 0, SMALL);
		else
			emit_payload(at, skb, c, &a, off, len, K_DNS, hook, in ? B_INGRESS : 0, LARGE);
		return 1;
	}
	if (!in && a.proto == 6 && !bpf_skb_load_bytes(skb, off, head, 6) && head[0] == 0x16 && head[1] == 3 &&
		head[5] == 1) {
		emit_payload(at, skb, c, &a, off, len, K_TLS, hook, 0, LARGE);
		return 1;
	}
filtered:
	count(c->filtered);
	return 1;
}

SEC("cgroup_skb/ingress")
int skb_in(struct __sk_buff *skb) { return on_packet(skb, H_SKB_IN, 1); }

SEC("cgroup_skb/egress")
int skb_out(struct __sk_buff *skb) { return on_packet(skb, H_SKB_OUT, 0); }

#endif
