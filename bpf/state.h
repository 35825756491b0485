/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps, the scope test, counters, the record under construction, the ring. */
#ifndef ASSAY_STATE_H
#define ASSAY_STATE_H
#include "core.h"
#include "record.h"

/* Set before load. */
volatile const u32 slot_mask;  /* coalescing slots per CPU, minus one */
volatile const u32 wake_bytes; /* wake the reader when this much waits */
volatile const u64 seed;       /* of the key hashes */
volatile const struct syscall syscalls[NSYS];
volatile const struct syscall syscalls32[NSYS]; /* ia32; all P_NONE elsewhere */

/* The cgroup2 id of the session's directory. Set before anything is attached. */
u64 session_id;

/* Counts the session's renames, mounts and removals of directories: pointers to
 * dentries seen before may now mean another path. Part of every key. */
u64 generation;
/* A rename through io_uring was asked for: when it happens is not seen, so from
 * then on no repeat is counted beyond a timer tick. */
u32 unsettled;
u64 last_wake;

#define DATA 65536       /* a power of two */
#define DATA_SLACK 8192  /* what one copy may write beyond a masked offset */
#define HEAD 96          /* of a dentry: the fields that matter, and a short name */

/* State of loops lives here rather than on the stack: the verifier does not
 * follow the values of map memory, so one pass over a loop's body is enough. */
struct walk {
	u32 off, start, names, bits;
	struct dentry *dentry;
	struct mount *mnt;
	struct mnt_namespace *ns; /* the current task's */
	struct { /* of mnt */
		struct mount *parent;
		struct dentry *mountpoint, *root;
	} tree;
	u64 head[HEAD / 8]; /* of the dentry at hand */
};

struct copy_args {
	u64 from, to, done;
};

struct env {
	u64 at, end;
	u32 off, start;
	u32 inside; /* in the middle of a long entry: its name is done */
	u32 len;    /* of the name just read */
	u64 tool, trace;
};

/* The parts of the data where names are read to. What is sent is put together
 * below them. */
#define IN_AT 36864   /* the first name of a call */
#define ROOM_AT 40960 /* what remains of it when links were followed */
#define IN2_AT 45056  /* the second */
#define ROOM2_AT 49152
#define NAME_AT 53248 /* a further string */

struct hash_at {
	u64 a, b;
	u32 off;
};

struct resolve {
	struct dentry *dentry, *root, *found;
	struct mount *mnt, *root_mnt;
	u64 x, y, node, head;
	u32 at, len, end, hash, room, links;
	u32 changed; /* by ".." or a link: what is reported is not what was given */
	u32 missing, lost, bits;
};

struct scratch {
	struct walk walk;
	struct resolve resolve;
	struct copy_args args;
	struct env env;
	struct hash_at hash;
	u64 how;   /* what else tells repeats apart: see key_who */
	u64 bytes; /* that this occurrence adds */
	u32 name;  /* length of a further string at NAME_AT */
	u32 nr, cpu, prog;
	u32 sel; /* index of the syscall in its table */
	u32 is32;
	u32 bits;
	s64 ret;
	u64 arg[6];
	u64 key[KEY_WORDS];
	u32 slot;     /* to fill after emission */
	u32 has_slot;
	u64 seq;
	u64 t; /* now, for the next record */
	struct record r;
	u8 data[DATA + DATA_SLACK];
};

#define ARRAY(NAME, VALUE, N, FLAGS)                 \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);    \
		__uint(max_entries, N);              \
		__uint(map_flags, FLAGS);            \
		__type(key, u32);                    \
		__type(value, VALUE);                \
	} NAME SEC(".maps")

/* Arrays with one region per CPU rather than per-CPU maps: one allocation, and
 * user space reads them through mmap. Sizes for one CPU, multiplied at load.
 * Programs of different contexts on one CPU can interrupt each other, so each
 * context has its own scratch. */
ARRAY(counters, struct counter, H_CELLS, BPF_F_MMAPABLE);
ARRAY(slots, struct slot, 1024, BPF_F_MMAPABLE);
ARRAY(scratches, struct scratch, 2, 0);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} session SEC(".maps");

/* Whether the current task is in the session's cgroup or below. */
static __always_inline int in_scope(void)
{
	return bpf_current_task_under_cgroup(&session, 0) == 1;
}

static __always_inline u64 mix(u64 h, u64 v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15ULL;
	return h ^ h >> 29;
}

struct ancestry {
	u64 list;
	int found;
};

static long ancestor(u32 i, void *arg)
{
	struct ancestry *a = arg;
	struct cgroup *up = 0;

	bpf_probe_read_kernel(&up, sizeof(up), (void *)a->list + i * 8);
	a->found = BPF_CORE_READ(up, kn, id) == session_id;
	return a->found;
}

/* The same for any cgroup. By id at any depth, since the depth of the session
 * cannot be told from inside a cgroup namespace. */
static __always_inline int cgroup_in_scope(struct cgroup *cg)
{
	struct ancestry a = {.list = (u64)&cg->ancestors};

	bpf_loop((BPF_CORE_READ(cg, level) + 1) & 0xff, ancestor, &a, 0);
	return a.found;
}

static __always_inline struct counter *cell(u32 hook)
{
	u32 i = bpf_get_smp_processor_id() * H_CELLS + (hook & (H_CELLS - 1));

	return bpf_map_lookup_elem(&counters, &i);
}

enum { CTX_TASK, CTX_SYSCALL };

static __always_inline struct scratch *scratch(u32 context)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 i = cpu * 2 + context;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &i);

	if (s)
		s->cpu = cpu;
	return s;
}

/* Ids are unique over CPUs and contexts, and never 0. */
static __always_inline u64 next_id(struct scratch *s, u32 context)
{
	return (u64)(s->cpu * 2 + context) << 40 | ++s->seq;
}

/* Pointers of the kernel's are followed with BPF_CORE_READ, not directly: the
 * verifier checks each direct step by searching all of the kernel's types by
 * name, which takes it a millisecond. */

/* When the current task's process started. */
static __always_inline u64 started(struct task_struct *t)
{
	return t->pid == t->tgid ? t->start_boottime : BPF_CORE_READ(t, group_leader, start_boottime);
}

/* The functions that are not static are verified once on their own instead of
 * along every way that leads to them. It makes loading ten times faster. */

/* Starts the record in s with the current task as the actor. A system call's is
 * as of s->t. */
__noinline int begin(struct scratch *s, u32 context, u32 kind, u32 hook)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct record *r;

	if (!s)
		return -1;
	r = &s->r;

	__builtin_memset(r, 0, sizeof(*r));
	r->t = context == CTX_SYSCALL ? s->t : bpf_ktime_get_boot_ns();
	r->start = started(t);
	r->cgroup = bpf_get_current_cgroup_id();
	r->id = next_id(s, context);
	r->tgid = t->tgid;
	r->tid = t->pid;
	r->ppid = BPF_CORE_READ(t, real_parent, tgid);
	r->kind = kind;
	r->hook = hook;
	r->cpu = s->cpu;
	return 0;
}

static __always_inline u64 wakeup(u64 seq, u64 now)
{
	/* Looked at for every 16th record, since the reader keeps writing to what
	 * tells. Once past the mark, wake at most every millisecond: a reader that
	 * is at work needs no further interrupt. It polls besides. */
	if (seq & 15 || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < wake_bytes)
		return BPF_RB_NO_WAKEUP;
	if (now - last_wake < 1000000)
		return BPF_RB_NO_WAKEUP;
	last_wake = now;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends the record in s with len bytes of data. Counts it, whatever happens. */
__noinline int emit(struct scratch *s, struct counter *c, u32 len)
{
	if (!s || !c)
		return -1;
	if (s->r.bits & B_FAILED_READ)
		c->failed_reads++;
	if (len > DATA)
		len = DATA;
	if (bpf_ringbuf_output(&ring, &s->r, sizeof(s->r) + len, wakeup(s->seq, s->r.t))) {
		c->dropped++;
		return -1;
	}
	c->emitted++;
	return 0;
}

#endif
