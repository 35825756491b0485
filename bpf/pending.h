/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What one hook leaves for another that the same thread reaches later. */
#ifndef ASSAY_PENDING_H
#define ASSAY_PENDING_H
#include "state.h"

/* What the cgroup hooks leave for the exit of the call they ran in. */
struct pending {
	struct address at;
	u32 uring; /* the thread is submitting an io_uring request instead */
	u32 set;
};

enum { SET_PEER = 1, SET_OWN }; /* which of at's addresses is set */
enum { URING_TELLS = 1, URING_QUIET }; /* pending.uring: whether a completion will come */

/* Addresses that the cgroup hooks saw for io_uring requests under way, by the
 * socket's cookie. One that finds no room is reported at once. */
#define ADDRESS_TOLD 1 /* address.pad: it has been reported */

OF_SESSIONS(uring_addresses, BPF_MAP_TYPE_HASH, 4096, BPF_F_NO_PREALLOC, 8, sizeof(struct address));

/* By session and tid. User space makes it large enough for all threads there can
 * be, so that no session can take the room of another's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct pending);
} pendings SEC(".maps");

static __always_inline struct pending *get_pending(u32 session, u32 tid)
{
	u64 key = (u64)session << 32 | tid;

	return bpf_map_lookup_elem(&pendings, &key);
}

static __always_inline long put_pending(u32 session, u32 tid, struct pending *p)
{
	u64 key = (u64)session << 32 | tid;

	return bpf_map_update_elem(&pendings, &key, p, BPF_ANY);
}

static __always_inline void drop_pending(u32 session, u32 tid)
{
	u64 key = (u64)session << 32 | tid;

	bpf_map_delete_elem(&pendings, &key);
}

#endif
