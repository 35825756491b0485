/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps, counters, the record under construction, the rings. */
#ifndef ASSAY_STATE_H
#define ASSAY_STATE_H
#include "core.h"
#include "record.h"
#include "word.h"

/* Set before load. */
volatile const u64 seed; /* of the key hashes */
volatile const struct syscall syscalls[2 * NSYS]; /* from NSYS those of ia32, all P_NONE elsewhere */

#define DATA 65536       /* a power of two */
#define DATA_SLACK 8192  /* what one copy may write beyond a masked offset */
#define HEAD 96          /* of a dentry: the fields that matter, and a short name */
#define INODE 128        /* of an inode: the fields that matter */
#define FILE 80          /* of an open file: the fields that matter */

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
	u32 have, pad;      /* head is that of the dentry to look at next */
	u64 inode[INODE / 8];
	u64 file[FILE / 8];
	struct super_block *sb; /* whose number dev is, 0 for none */
	u64 ino;                /* of the inode that identity saw last */
	u32 dev, mode;
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

struct control {
	u64 at, end;
	u64 other;  /* the operation of the first that is not modelled, where they are judged */
	u32 judged; /* they are sent to no unix socket, where only descriptors matter */
	u32 found, ways;
};

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
	u32 follow; /* a link as the last part, too */
	u32 exact;  /* links of proc are followed, for the comparison with the file that was opened */
	u32 keep;   /* a link as the last part is what was opened */
	u32 made_up; /* a link of proc was followed */
	struct dentry *target; /* the last part */
	u64 name, in; /* of a link of proc, and of its directory: here, as Linux 6.1 has no room on the stack */
	u32 ways;   /* how many of way are set */
	u32 changes; /* the call makes the last part lead elsewhere */
	u64 sb;     /* of the directory at hand */
	u32 way[WAYS + 2];
};

/* A system call as it was made, for the next session that sees it. */
struct call {
	u32 nr;
	s64 ret;
	u64 arg[6];
};

/* The process of an event that does not happen in it: the traffic of a socket, the end
 * of an io_uring request. */
struct owner {
	u64 start, cgroup;
	u32 tgid, tid, ppid, exec;
};

/* What is known of a socket call. */
struct peer {
	struct address a;
	struct path at; /* of a unix socket */
	u32 len;        /* of its name at NAME_AT */
	u32 walked;     /* at is the socket itself, else where its name begins */
};

struct scope {
	u64 cgroup;
	u32 epoch;
	u32 n;             /* up to DEPTH */
	u32 handle[DEPTH]; /* outermost session first */
};

struct scratch {
	struct owner who; /* whose the event is */
	u32 is_other;     /* not the current task's: who has been set */
	u32 kind, hook, context; /* of the record to make */
	struct peer peer;
	struct call call;
	struct walk walk;
	struct resolve resolve;
	struct copy_args args;
	struct env env;
	struct control control;
	struct hash_at hash;
	u64 how;   /* what else tells repeats apart: see key_who */
	u64 bytes; /* that this occurrence adds */
	u32 name;  /* length of a further string at NAME_AT */
	u64 foreign; /* a socket's file that was used */
	u32 named; /* what is reported are names, see report_names */
	u32 tasks; /* that a move is of */
	u32 about; /* the process that the call is about, in the first pid namespace */
	u32 nr, cpu, prog;
	u32 made; /* the call as the task made it, see call_of in names.h */
	u32 told; /* of what was noted during the call, see report_wanted */
	u32 copied, read; /* how many of its names are the kernel's copies, and how many are not */
	u32 sel; /* index of the syscall in the table */
	u32 is32; /* 0 or 1 */
	u32 bits;
	s64 ret;
	u64 arg[6];
	u32 recorded; /* which of them the record gets, as struct syscall says */
	u64 key[KEY_WORDS];
	u32 session; /* at hand */
	struct scope here; /* whose call is reported, see sys_exit */
	u32 lane;
	u32 slot;     /* to fill after emission */
	u32 has_slot;
	u64 kernel_exec; /* the name of a program that the kernel starts */
	u32 asked[DEPTH]; /* the sessions of who waits for it */
	u32 asked_known;  /* who that is */
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

/* Each CPU has its own place, and each context there, since programs of different
 * contexts on one CPU can interrupt each other. Sizes for one CPU are multiplied at
 * load. */
#define SCRATCHES 3
ARRAY(scratches, struct scratch, SCRATCHES, 0);

ARRAY(sessions, struct session, 1, BPF_F_MMAPABLE);

/* The sessions' own maps, by number. A place that was filled once is reused and never
 * emptied, because a change costs user space an RCU grace period. An array has a region
 * for each CPU and is no per-CPU map, so that user space can read it through mmap. */
#define OF_SESSIONS(NAME, TYPE, N, FLAGS, KEY, VALUE)             \
	struct {                                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);         \
		__uint(max_entries, 1);                           \
		__type(key, u32);                                 \
		__array(values, struct {                          \
			__uint(type, TYPE);                       \
			__uint(max_entries, N);                   \
			__uint(map_flags, FLAGS);                 \
			__uint(key_size, KEY);                    \
			__uint(value_size, VALUE);                \
		});                                               \
	} NAME SEC(".maps")

OF_SESSIONS(counters, BPF_MAP_TYPE_ARRAY, H_CELLS, BPF_F_MMAPABLE, 4, sizeof(struct counter));
OF_SESSIONS(slots, BPF_MAP_TYPE_ARRAY, CPU_SLOTS, BPF_F_MMAPABLE, 4, sizeof(struct slot));
OF_SESSIONS(rings, BPF_MAP_TYPE_RINGBUF, 4096, 0, 0, 0); /* L_COUNT of each session */

/* An element of a session's own map. */
static __always_inline void *get_own(void *maps, u32 session, const void *key)
{
	void *own = bpf_map_lookup_elem(maps, &session);

	return own ? bpf_map_lookup_elem(own, key) : 0;
}

/* Returns 0, or what went wrong: the map may be full. */
static __always_inline long put_own(void *maps, u32 session, const void *key, const void *value)
{
	void *own = bpf_map_lookup_elem(maps, &session);

	return own ? bpf_map_update_elem(own, key, value, BPF_ANY) : -1;
}

static __always_inline void drop_own(void *maps, u32 session, const void *key)
{
	void *own = bpf_map_lookup_elem(maps, &session);

	if (own)
		bpf_map_delete_elem(own, key);
}

/* Eight bytes, anywhere but on the stack. The compiler would read them one by one. */
static __always_inline u64 get8(const void *from)
{
	u64 v;

	asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(v) : "r"(from) : "memory");
	return v;
}

static __always_inline void put8(void *to, u64 v)
{
	asm volatile("*(u64 *)(%0 + 0) = %1" : : "r"(to), "r"(v) : "memory");
}

static __always_inline u64 mix(u64 h, u64 v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15ULL;
	return h ^ h >> 29;
}

static __always_inline struct counter *cell(u32 session, u32 hook)
{
	u32 i = bpf_get_smp_processor_id() * H_CELLS + (hook & (H_CELLS - 1));

	return get_own(&counters, session, &i);
}

/* Notes that a hook has fired. Returns less than 0 if there is no counter. */
__noinline int count_fired(u32 session, u32 hook)
{
	struct counter *c = cell(session, hook);

	if (!c)
		return -1;
	c->fired++;
	return 0;
}

/* Notes that something about an event of the session could not be kept or read. */
__noinline int count_loss(u32 session, u32 hook)
{
	struct counter *c = cell(session, hook);

	if (c)
		c->failed_reads++;
	return 0;
}

static __always_inline void *ring_of(u32 session, u32 lane)
{
	u32 i = session * L_COUNT + lane;

	return bpf_map_lookup_elem(&rings, &i);
}

/* The lane of each kind. Set before load. */
volatile const u8 lanes[K_COUNT];

static __always_inline u32 lane_of(u32 kind)
{
	return lanes[kind & (K_COUNT - 1)] & 1;
}

/* Where a program runs, which is also the stream of its records. That of signals runs in interrupts too, so it changes
 * nothing on its CPU that another program may be at work on: it has a scratch, slots and counters of its own. */
enum context { CTX_TASK = ST_TASK, CTX_SYSCALL = ST_SYSCALL, CTX_SIGNAL = ST_SIGNAL };

static __always_inline struct scratch *scratch(u32 context)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 i = cpu * SCRATCHES + (context == CTX_SIGNAL ? SCRATCHES - 1 : context);
	struct scratch *s = bpf_map_lookup_elem(&scratches, &i);

	if (s) {
		s->cpu = cpu;
		s->context = context;
	}
	return s;
}

/* Ids are unique over CPUs and contexts, and never 0. */
static __always_inline u64 next_id(struct scratch *s, u32 context)
{
	return (u64)(s->cpu * 4 + context) << 40 | ++s->seq;
}

/* Pointers of the kernel's are followed with FIELD where it matters and else with
 * BPF_CORE_READ: the verifier checks the first direct step from a task by searching all of
 * the kernel's types by name, which takes it up to a millisecond in each program. Only
 * file_of takes such a step, where there is no other way that is fast. */

/* When the current task's process started. */
static __always_inline u64 started(struct task_struct *t)
{
	return t->pid == t->tgid ? t->start_boottime :
		FIELD(FIELD(t, struct task_struct, group_leader), struct task_struct, start_boottime);
}

static __always_inline void whose(struct owner *o, struct task_struct *t)
{
	o->start = started(t);
	o->cgroup = bpf_get_current_cgroup_id();
	o->tgid = t->tgid;
	o->tid = t->pid;
	o->ppid = FIELD(FIELD(t, struct task_struct, real_parent), struct task_struct, tgid);
	o->exec = t->self_exec_id;
}

/* The session of a number. */
static __always_inline struct session *session(u32 number)
{
	return bpf_map_lookup_elem(&sessions, &number);
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
	r->id = next_id(s, context);
	if (!s->is_other)
		whose(&s->who, t);
	r->start = s->who.start;
	r->cgroup = s->who.cgroup;
	r->tgid = s->who.tgid;
	r->tid = s->who.tid;
	r->ppid = s->who.ppid;
	r->kind = kind;
	r->hook = hook;
	r->cpu = s->cpu;
	r->stream = context;
	if (kind != K_REPEAT) /* which goes where its first occurrence went */
		s->lane = lane_of(kind);
	return 0;
}

static __always_inline u64 wakeup(struct scratch *s, void *ring, struct session *own)
{
	if (own->asleep) {
		own->asleep = 0;
		return BPF_RB_FORCE_WAKEUP;
	}
	/* Checked for every 16th record only, since the reader keeps writing to the cache
	 * line that is read. Past the mark, wake at most once a millisecond: a reader that
	 * is at work needs no more interrupts. It also polls. */
	if (s->seq & 15 || bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < own->wake[s->lane & 1])
		return BPF_RB_NO_WAKEUP;
	if (s->r.t - own->last_wake < 1000000)
		return BPF_RB_NO_WAKEUP;
	own->last_wake = s->r.t;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends the record in s with len bytes of data, and counts it as sent or dropped. */
__noinline int emit(struct scratch *s, u32 len)
{
	struct counter *c, *serial;
	struct session *own;
	void *ring;

	if (!s || !(c = cell(s->session, s->r.hook)))
		return -1;
	own = session(s->session);
	serial = cell(s->session, H_SERIALS + s->r.stream * L_COUNT + s->lane);
	ring = ring_of(s->session, s->lane & 1);
	if (s->r.bits & B_FAILED_READ)
		c->failed_reads++;
	if (len > DATA)
		len = DATA;
	if (!own || !serial || !ring)
		goto dropped;
	s->r.serial = serial->fired + 1;
	if (bpf_ringbuf_output(ring, &s->r, sizeof(s->r) + len, wakeup(s, ring, own)))
		goto dropped;
	serial->fired++;
	c->emitted++;
	return 0;
dropped:
	c->dropped++;
	return -1;
}

#endif
