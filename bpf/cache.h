/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Coalescing: a two-way cache of keys per CPU. The first occurrence of an
 * event is sent whole and takes a slot; repeats are counted in the slot; when
 * another event needs it, its count is sent as a K_REPEAT record first. At the
 * end of the run user space reads what the slots still hold. Nothing is ever
 * evicted uncounted: if the K_REPEAT finds no room, the slot stays. */
#ifndef ASSAY_CACHE_H
#define ASSAY_CACHE_H
#include "state.h"

static __always_inline int same(struct slot *e, u64 *key)
{
	return e->id && e->key[2] == key[2] && e->key[0] == key[0] && e->key[1] == key[1] && e->key[3] == key[3] &&
	       e->key[4] == key[4] && e->key[5] == key[5] && e->key[6] == key[6] && e->key[7] == key[7];
}

/* Names may mean other files from now on. */
static __always_inline void rearranged(struct scratch *s)
{
	struct session *own = session(s->session);

	if (own)
		own->generation++;
}

/* Fills in the words of the key that say who, what and how it ended. Words 2
 * to 5 are the caller's: the object. */
__noinline int key_who(struct scratch *s, u32 kind)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct session *own;

	if (!s)
		return 0;
	own = session(s->session);
	s->lane = lane_of(kind);
	if (!s->is_other) {
		s->who.start = started(t);
		s->who.tgid = t->tgid;
		s->who.exec = t->self_exec_id;
	}
	s->key[0] = s->who.start;
	s->key[1] = (u64)s->who.tgid << 32 | (u64)kind << 16 | (u16)s->nr | s->is32 << 15;
	s->key[6] = s->how << 20 ^ (s->ret < 0 ? (u64)-s->ret : 0);
	/* A process that executes something else starts over. */
	s->key[7] = (u64)s->who.exec << 32;
	if (!own)
		return 0;
	s->key[7] ^= own->generation;
	if (own->unsettled)
		s->key[7] ^= bpf_jiffies64() << 8;
	return 0;
}

static __always_inline int flush(struct scratch *s, struct slot *e, u32 index)
{
	u32 hook = s->context == CTX_SIGNAL ? H_SIGNAL : H_FLUSH;

	if (count_fired(s->session, hook))
		return -1;
	begin(s, s->context, K_REPEAT, hook);
	s->r.id = e->id;
	s->r.slot = index;
	s->r.arg[0] = e->count;
	s->r.arg[1] = e->first;
	s->r.arg[2] = e->last;
	s->r.arg[3] = e->bytes;
	s->r.arg[4] = e->bytes_in;
	return emit(s, 0);
}

/* Returns 1 when s->key repeats what a slot holds: it is counted and done.
 * Else 0, with a slot to keep in s if one could be had. */
__noinline int coalesce(struct scratch *s)
{
	struct counter *c;
	u64 h = 0, tick;
	struct slot *a, *b, *hit, *old;
	void *cache;
	u32 i, j;

	if (!s)
		return 0;
	s->has_slot = 0;
	i = s->session;
	cache = bpf_map_lookup_elem(&slots, &i);
	if (!cache)
		return 0;
	/* Products that do not wait for each other, whose upper bits depend on all of the key. */
#pragma unroll
	for (i = 0; i < KEY_WORDS; i += 2)
		h += (s->key[i] ^ seed) * (s->key[i + 1] + (seed | 1));
	h >>= 48;
	i = s->cpu * CPU_SLOTS + (s->lane ? FILE_SLOTS + (h & (URGENT_SLOTS - 1)) : h & (FILE_SLOTS - 1));
	if (s->context == CTX_SIGNAL)
		i = s->cpu * CPU_SLOTS + FILE_SLOTS + URGENT_SLOTS + (h & (SIGNAL_SLOTS - 1));
	j = i ^ 1;
	a = bpf_map_lookup_elem(cache, &i);
	b = bpf_map_lookup_elem(cache, &j);
	if (!a || !b)
		return 0;
	if (same(a, s->key))
		hit = a;
	else if (same(b, s->key))
		hit = b;
	else
		goto miss;
	if (!(c = cell(s->session, s->hook)))
		return 0;
	/* Reading the clock takes as long as all else here, its last tick nothing. Of names it matters whether another
	 * task changed what they lead to meanwhile. */
	tick = bpf_jiffies64();
	if (s->named || !hit->count || hit->tick != tick) {
		hit->last = bpf_ktime_get_boot_ns();
		hit->tick = tick;
		if (s->named)
			s->t = hit->last; /* see forget_notes */
	}
	if (!hit->count++)
		hit->first = hit->last;
	hit->bytes += s->bytes;
	c->coalesced++;
	return 1;
miss:
	s->t = bpf_ktime_get_boot_ns();
	old = a;
	if (a->id && (!b->id || b->last < a->last)) {
		old = b;
		i = j;
	}
	if (old->id && old->count && flush(s, old, i))
		return 0;
	old->id = 0;
	s->slot = i;
	s->has_slot = 1;
	return 0;
}

/* Sends the record and, if that worked, gives it the slot. */
__noinline int emit_keyed(struct scratch *s, u32 len)
{
	struct slot *e;
	u32 i, number;
	void *cache;

	if (!s)
		return 0;
	i = s->slot;
	number = s->session;
	if (s->has_slot) {
		s->r.bits |= B_SLOT;
		s->r.slot = i;
	}
	if (emit(s, len) || !s->has_slot)
		return 0;
	cache = bpf_map_lookup_elem(&slots, &number);
	e = cache ? bpf_map_lookup_elem(cache, &i) : 0;
	if (!e)
		return 0;
	__builtin_memcpy(e->key, s->key, sizeof(e->key));
	e->id = s->r.id;
	e->count = e->first = e->bytes = e->bytes_in = 0;
	e->last = e->t0 = s->r.t;
	return 0;
}

#endif
