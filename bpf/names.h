/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel's own copies of the names that a call took. The kernel copies a name once
 * into a struct filename, uses that, and frees it before the call returns. A program sees
 * it freed and keeps it for the call's exit, so that it does not matter what the caller's
 * memory holds by then. */
#ifndef ASSAY_NAMES_H
#define ASSAY_NAMES_H
#include "path.h"
#include "sessions.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct filename {
	const char *name;
	const char *uptr; /* where the caller has it, 0 for a unix socket's */
	const char iname[0];
};
struct filename___counted { /* since Linux 6.7 */
	atomic_t refcnt;
};
struct filename___plain { /* before */
	int refcnt;
};
#pragma clang attribute pop

/* The allocator's cache of such structs, 0 if it is not known, or LEARNING. User space finds
 * it with learn, below, and the places in the kernel's code that free one. */
u64 name_cache;
u64 name_cache_found;

/* The places, each within NEAR of where its hash leads, so that a look-up does not search them all. */
#define SITES 128
#define NEAR 8
u64 name_sites[SITES];

/* The thread that makes the calls to learn from, the address of their names, and how these begin. */
u32 learner;
u64 learner_at;
u64 learner_name[2];

#define LEARNING 1
#define LESSON 4096 /* bytes of memory that the learner has its names in */
#define KEPT 2 /* no call takes more names */
#define DIFFER -2

struct note {
	u64 from; /* filename.uptr */
	u32 len, pad;
	u8 name[4096 + 8]; /* with zeros behind it */
};

#define WANTED 4

/* What the kernel was seen to be asked for during a call: operations as in model.h that are not the caller's own. */
struct wanted {
	u64 at, end; /* of the netlink messages at hand */
	u32 protocol;
	u32 refused; /* what changes something, for lack of a privilege */
	u32 seen; /* packets of netlink that were */
	u32 n;
	u64 op[WANTED];
};

/* What a thread's call has left for its exit. */
struct notes {
	struct wanted wanted;
	u32 call; /* see call_of */
	u32 n;    /* more than KEPT: some were not kept */
	u32 differ; /* two came from one address, and are not the same */
	u32 namespaces; /* that the last fork made, as CLONE_NEW* */
	u64 over; /* when an earlier call of the task ended, or before: the next call began later */
	struct note note[KEPT];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct notes);
} notes SEC(".maps");

/* In notes.call, no number of a call: the note is the name of the core dump that the kernel
 * wrote, or tried to write. */
#define DUMPED 0xffffffff

/* Whether the kernel is writing the core dump of the task's process, in its name. */
static __always_inline int dumps(struct task_struct *t)
{
	struct signal_struct *sig = FIELD(t, struct task_struct, signal);
	struct core_state *core;

	if (bpf_core_field_exists(sig->core_state))
		core = FIELD(sig, struct signal_struct, core_state);
	else
		core = BPF_CORE_READ(t, mm, core_state);
	return core && FIELD(core, struct core_state, dumper.task) == t;
}

/* The call that a task is in. When a call that takes names returns, its notes are forgotten,
 * so that notes with the number of this call are its own. */
static __always_inline u32 call_of(u32 nr, u32 is32)
{
	return nr << 1 | is32;
}

/* Whether the calls of that handler take names. */
static __always_inline int takes_names(u32 prog)
{
	return (1 << P_OPEN | 1 << P_PATH | 1 << P_CWD | 1 << P_SOCKET | 1 << P_PACKED) >> (prog & 31) & 1;
}

static __always_inline u32 refs_of(struct filename *f)
{
	struct filename___counted *now = (void *)f;
	struct filename___plain *before = (void *)f;

	if (bpf_core_field_exists(now->refcnt.counter))
		return FIELD(now, struct filename___counted, refcnt.counter);
	return FIELD(before, struct filename___plain, refcnt);
}

/* Whether the name is in the struct itself. All but the longest are; those are in an object of
 * the same cache that is no struct. */
static __always_inline int embedded(struct filename *f)
{
	return FIELD(f, struct filename, name) == (void *)f + bpf_core_field_offset(struct filename, iname);
}

/* Whether this place in the kernel's code was learned, or is learned now. */
static __always_inline int known_site(u64 site, int learn)
{
	u32 at = (site * 0x9E3779B97F4A7C15ULL) >> 57, i;

#pragma unroll
	for (i = 0; i < NEAR; i++) {
		u64 *there = &name_sites[(at + i) & (SITES - 1)];

		if (*there == site)
			return 1;
		if (!*there) {
			if (learn)
				*there = site;
			return learn;
		}
	}
	return 0;
}

/* Notes the cache and the place of a free, if what is freed is the learner's name. */
__noinline int learn_from(u64 site, u64 object, u64 cache)
{
	struct filename *f = (void *)object;
	u64 name[2] = {};

	if (bpf_get_current_task_btf()->pid != learner || !embedded(f) ||
		(u64)BPF_CORE_READ(f, uptr) - learner_at >= LESSON || refs_of(f) > 1)
		return 0;
	bpf_probe_read_kernel(name, sizeof(name), (void *)f + bpf_core_field_offset(struct filename, iname));
	if (name[0] != learner_name[0] || name[1] != learner_name[1] || (name_cache_found && name_cache_found != cache))
		return 0;
	name_cache_found = cache;
	known_site(site, 1);
	return 0;
}

static long compare(u32 i, void *arg)
{
	struct notes *n = *(struct notes **)arg;
	u32 at = i * 8 & 4095;

	n->differ |= get8(&n->note[0].name[at]) != get8(&n->note[1].name[at]);
	return 0;
}

#define SHORT 64 /* the names that are copied by words, a multiple of them */

/* Copies the name at that address, with zeros behind it. Returns its length. */
static __always_inline u32 keep_name(struct note *to, u64 name)
{
	u64 w, end;
	long n;
	u32 i;

#pragma unroll
	for (i = 0; HAS_WORDS && i < SHORT; i += 8) {
		w = word_at(name + i);
		end = HAS_ZERO(w);
		if (end) {
			put8(&to->name[i], w & BEFORE(end));
			return i + FIRST(end);
		}
		put8(&to->name[i], w);
	}
	n = bpf_probe_read_kernel_str(to->name, 4096, (void *)name);
	n = n > 0 ? (n - 1) & 4095 : 0;
	put8(&to->name[n], 0);
	return n;
}

/* The handler of the call that the current task is in. call becomes what call_of says of it. */
static __always_inline u32 handler_here(struct task_struct *t, u32 *call)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(t);
	u32 nr, is32 = 0, sel;

#if defined(__TARGET_ARCH_x86)
	nr = (u32)FIELD(regs, struct pt_regs, orig_ax);
	is32 = t->thread_info.status >> 1 & 1; /* TS_COMPAT */
#else
	nr = (u32)FIELD(regs, struct pt_regs, syscallno);
#endif
	*call = call_of(nr, is32);
	if (nr >= NSYS)
		return P_NONE;
	sel = nr + is32 * NSYS;
	asm volatile("" : "+r"(sel));
	return syscalls[sel & (2 * NSYS - 1)].prog;
}

/* Keeps the name for the exit of the current call. */
__noinline int take_note(u64 object)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct filename *f = (void *)object;
	struct notes *kept;
	struct note *to;
	u32 prog, call;
	u64 from;
	long n;

	if (!embedded(f) || refs_of(f) > 1)
		return 0;
	from = (u64)FIELD(f, struct filename, uptr);
	if (!from && dumps(t)) {
		call = DUMPED;
		goto keep;
	}
	prog = handler_here(t, &call);
	if (!takes_names(prog))
		return 0;
	if (!from && prog != P_SOCKET && prog != P_PACKED) /* the kernel's own name of something */
		return 0;
keep:
	kept = bpf_task_storage_get(&notes, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!kept)
		return 0;
	if (kept->call != call || call == DUMPED) {
		kept->call = call;
		kept->n = kept->differ = 0;
	}
	if (kept->n++ >= KEPT)
		return 0;
	to = &kept->note[(kept->n - 1) & (KEPT - 1)];
	n = keep_name(to, (u64)f + bpf_core_field_offset(struct filename, iname));
	to->len = n;
	to->from = from;
	if (kept->n == KEPT && kept->note[0].from == from) {
		kept->differ = kept->note[0].len != n;
		bpf_loop((n + 7) / 8, compare, &kept, 0);
	}
	return 0;
}

/* Runs for every object that the kernel frees. */
SEC("raw_tp/kmem_cache_free")
int BPF_PROG(freed, u64 site, u64 object, u64 cache)
{
	struct scope *in;

	if (cache != name_cache)
		return name_cache == LEARNING ? learn_from(site, object, cache) : 0;
	in = scope_here();
	if (!in || !in->n)
		return 0;
	return known_site(site, 0) ? take_note(object) : 0;
}

/* User space announces the calls that it is going to make. */
struct lesson {
	u64 at, name[2];
};

SEC("syscall")
int learn(struct lesson *ctx)
{
	learner = bpf_get_current_task_btf()->pid;
	learner_at = ctx->at;
	learner_name[0] = ctx->name[0];
	learner_name[1] = ctx->name[1];
	name_cache_found = 0;
	__builtin_memset(name_sites, 0, sizeof(name_sites));
	name_cache = LEARNING;
	return 0;
}

/* Forgets what the call has left. */
static __always_inline void forget_notes(struct scratch *s)
{
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);

	if (!kept)
		return;
	kept->n = kept->differ = 0;
	if (s->t > kept->over) /* the time of an earlier record if this call made none and repeated no names */
		kept->over = s->t;
}

/* Notes the end of a call that waits for other tasks. */
static __always_inline int note_wait(struct task_struct *t)
{
	struct notes *kept = bpf_task_storage_get(&notes, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (kept)
		kept->over = bpf_ktime_get_boot_ns();
	return 0;
}

/* The call in s began at most so many nanoseconds ago. All ones: not known. */
static __always_inline u32 age_of_call(struct scratch *s)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct notes *kept = bpf_task_storage_get(&notes, t, 0, 0);
	u64 age;

	if (s->context != CTX_SYSCALL || s->is_other)
		return ~0U;
	age = s->r.t - (kept && kept->over ? kept->over : t->start_boottime);
	return age < ~0U ? age : ~0U;
}

/* Copies the name that the kernel had from that address to off. Returns its length, less than
 * 0 if there is none, DIFFER if there were two. */
__noinline int copy_note(struct scratch *s, u32 off, u64 from)
{
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);
	struct note *found;
	u32 len;

	if (!s || !kept || kept->call != s->made || kept->n > KEPT)
		return -1;
	if (kept->n > 0 && kept->note[0].from == from)
		found = &kept->note[0];
	else if (kept->n > 1 && kept->note[1].from == from)
		found = &kept->note[1];
	else
		return -1;
	if (kept->n > 1 && kept->note[0].from == kept->note[1].from && kept->differ)
		return DIFFER;
	len = found->len & 4095;
	bpf_probe_read_kernel(&s->data[off & (DATA - 1)], len + 1, found->name);
	return len;
}

/* The one name that the kernel had, if it had it from that address. */
static __always_inline struct note *only_note(struct scratch *s, u64 from)
{
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);

	return kept && kept->call == s->made && kept->n == 1 && kept->note[0].from == from ? &kept->note[0] : 0;
}

#endif
