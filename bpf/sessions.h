/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which sessions a cgroup is in. The ancestors of a cgroup never change, so the
 * answer holds until a session begins or ends. It is kept per CPU by the cgroup's
 * id, which is never used twice: a process outside of every session, and one
 * inside, costs one look-up however many sessions there are. */
#ifndef ASSAY_SESSIONS_H
#define ASSAY_SESSIONS_H
#include "state.h"

/* The sessions by the ids of their cgroups. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} numbers SEC(".maps");

/* User space counts it up whenever numbers has changed. */
ARRAY(epochs, u64, 1, BPF_F_MMAPABLE);

static __always_inline u32 epoch(void)
{
	u32 zero = 0;
	volatile u64 *e = bpf_map_lookup_elem(&epochs, &zero);

	return e ? *e : 0;
}

#define SCOPES 256 /* of each CPU, a power of two */

ARRAY(scopes, struct scope, SCOPES, 0);

struct lineage {
	u64 list;
	struct scope *to;
};

static long ancestor(u32 i, void *arg)
{
	struct lineage *l = arg;
	struct cgroup *up = 0;
	struct session *own;
	u32 *number, n = l->to->n;
	u64 id;

	bpf_probe_read_kernel(&up, sizeof(up), (void *)l->list + i * 8);
	id = BPF_CORE_READ(up, kn, id);
	number = bpf_map_lookup_elem(&numbers, &id);
	if (!number || !(own = session(*number)))
		return 0;
	if (n >= DEPTH) {
		own->deeper = 1;
		return 1;
	}
	l->to->handle[n & (DEPTH - 1)] = own->handle;
	l->to->n = n + 1;
	return 0;
}

/* Walks from the root to the cgroup, 0 for the current task's. Ids at any depth,
 * since depths cannot be told from inside a cgroup namespace. */
static __always_inline void find_sessions(struct scope *to, u64 cgroup)
{
	struct cgroup *cg = (void *)cgroup;
	struct lineage l = {.to = to};

	if (!cg)
		cg = BPF_CORE_READ(bpf_get_current_task_btf(), cgroups, dfl_cgrp);
	l.list = (u64)&cg->ancestors;
	bpf_loop((BPF_CORE_READ(cg, level) + 1) & 0xff, ancestor, &l, 0);
}

/* Fills place i. */
__noinline int keep_scope(u32 i, u64 id, u64 cgroup)
{
	/* The epoch first: what changes meanwhile makes this outdated at once. */
	struct scope found = {.cgroup = id, .epoch = epoch()}, *e;

	find_sessions(&found, cgroup);
	e = bpf_map_lookup_elem(&scopes, &i);
	if (!e)
		return 0;
	e->cgroup = 0; /* of none, for whoever interrupts this */
	barrier();
	e->epoch = found.epoch;
	e->n = found.n;
	__builtin_memcpy(e->handle, found.handle, sizeof(e->handle));
	barrier();
	e->cgroup = id;
	return 0;
}

/* The place of a cgroup's sessions on this CPU. */
static __always_inline u32 scope_at(u64 id)
{
	return bpf_get_smp_processor_id() * SCOPES + (u32)(id * 0x9E3779B97F4A7C15ULL >> 56);
}

/* The sessions of the cgroup of that id, which is at that address, or is the
 * current task's. Not for programs that can interrupt others. Valid until the next. */
static __always_inline struct scope *scope_of(u64 id, u64 cgroup)
{
	u32 i = scope_at(id);
	struct scope *e = bpf_map_lookup_elem(&scopes, &i);

	if (e && (e->cgroup != id || e->epoch != epoch()))
		keep_scope(i, id, cgroup);
	return e;
}

/* The same for programs that can interrupt others, of which one may be using any place: they fill none. */
__noinline int copy_scope(struct scope *to, u64 id, u64 cgroup)
{
	u32 i = scope_at(id);
	struct scope *e = bpf_map_lookup_elem(&scopes, &i);

	if (!to)
		return 0;
	if (e && e->cgroup == id && e->epoch == epoch())
		*to = *e;
	else
		find_sessions(to, cgroup);
	return 0;
}

static __always_inline struct scope *scope_here(void)
{
	return scope_of(bpf_get_current_cgroup_id(), 0);
}

/* The number of the i-th session. */
static __always_inline u32 number(struct scope *e, u32 i)
{
	return e->handle[i & (DEPTH - 1)] & ((1 << SESSION_BITS) - 1);
}

/* A function of its own, as the verifier would go through it for each of a caller's
 * loops, times four. */
__noinline int holds(struct scope *e, u32 handle)
{
	u32 i;

	if (!e)
		return 0;
#pragma unroll
	for (i = 0; i < DEPTH; i++)
		if (i < e->n && e->handle[i] == handle)
			return 1;
	return 0;
}

/* What of a process was ever another task's as well since it executed its program. */
enum shared {
	SHARED_MEMORY = 1,
	SHARED_DESCRIPTORS = 2,
};

/* A process of sessions: which those were when it was seen last, and what it shares. */
struct member {
	struct scope in;
	u32 shared, pad; /* enum shared */
	u64 joined; /* CLOCK_BOOTTIME at which it was moved into a session, 0 if it was not */
};

/* By tgid. User space makes it large enough for all processes there can be, so that
 * no session can take the room of another's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct member);
} members SEC(".maps");

#define RLIMIT_CPU 0
#define RLIMIT_FSIZE 1
#define RLIMIT_RTTIME 15

/* Whose task limited a process outside, which the kernel may signal for that. By tgid. */
struct limit {
	struct scope in;
	struct owner who;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct limit);
} limits SEC(".maps");

/* Notes that the call limits the process that it is about. */
__noinline int note_limit(u32 tgid, u32 resource)
{
	struct limit l = {};
	struct scope *in;

	if (!tgid || (resource != RLIMIT_CPU && resource != RLIMIT_FSIZE && resource != RLIMIT_RTTIME) ||
		!(in = scope_here()))
		return 0;
	l.in = *in;
	whose(&l.who, bpf_get_current_task_btf());
	bpf_map_update_elem(&limits, &tgid, &l, BPF_ANY);
	return 0;
}

#endif
