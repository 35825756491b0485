/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Processes: fork, exit, and leaving a session's cgroup. */
#ifndef ASSAY_PROCESS_H
#define ASSAY_PROCESS_H
#include "exec.h"
#include "pending.h"
#include "report.h"
#include "sessions.h"

/* Reports a fork to the session at hand: which of the two are in it, and whether
 * it is known from now on who belongs to it. */
__noinline int report_fork(struct scratch *s, u64 task, u32 parent_in, u32 child_in, u32 unknown)
{
	struct task_struct *child = (void *)task;
	struct session *own;
	struct record *r;

	if (!s || count_fired(s->session, H_FORK))
		return 0;
	begin(s, CTX_TASK, K_FORK, H_FORK);
	r = &s->r;
	own = session(s->session);
	if (own && parent_in)
		own->several = 1;
	if (!parent_in) /* the recorder is no part of the run */
		r->tgid = r->tid = r->ppid = r->start = r->cgroup = 0;
	r->arg[0] = BPF_CORE_READ(child, tgid);
	r->arg[1] = BPF_CORE_READ(child, pid);
	r->arg[2] = BPF_CORE_READ(child, group_leader, start_boottime);
	r->arg[3] = BPF_CORE_READ(child, cgroups, dfl_cgrp, kn, id);
	r->arg[4] = r->arg[0] != r->arg[1];
	r->mode = mounts_of(child);
	if (parent_in)
		r->arg[5] = BPF_CORE_READ(child, files) == BPF_CORE_READ(bpf_get_current_task_btf(), files);
	if (unknown)
		r->bits |= B_FAILED_READ;
	emit(s, 0);
	if (child_in || count_fired(s->session, H_MOVED))
		return 0;
	begin(s, CTX_TASK, K_LEAVE, H_MOVED);
	r->ppid = r->tgid;
	r->tgid = BPF_CORE_READ(child, tgid);
	r->tid = BPF_CORE_READ(child, pid);
	r->start = BPF_CORE_READ(child, group_leader, start_boottime);
	r->cgroup = BPF_CORE_READ(child, cgroups, dfl_cgrp, kn, id);
	r->arg[3] = 1;
	emit(s, 0);
	return 0;
}

/* Whether the call that the current task is in is vfork, or a clone that does as
 * vfork does: the task waits until the child has memory of its own. */
static __always_inline int is_vfork(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(t);
	u64 nr, flags;

#if defined(__TARGET_ARCH_x86)
	u32 is32 = t->thread_info.status & 2; /* TS_COMPAT */

	nr = (u32)BPF_CORE_READ(regs, orig_ax);
	flags = is32 ? BPF_CORE_READ(regs, bx) : BPF_CORE_READ(regs, di);
	if (nr == (is32 ? 190 : 58))
		return 1;
#else
	nr = (u32)BPF_CORE_READ(regs, syscallno);
	flags = BPF_CORE_READ(regs, orig_x0);
#endif
	if (nr == CLONE3 && bpf_probe_read_user(&flags, sizeof(flags), (void *)flags))
		return 0;
	return flags >> 14 & 1; /* CLONE_VFORK */
}

/* Which namespaces the child has that its parent has not, as CLONE_NEW*. */
__noinline u32 new_namespaces(u64 parent_task, u64 child_task)
{
	struct task_struct *parent = (void *)parent_task, *child = (void *)child_task;
	struct nsproxy *was = BPF_CORE_READ(parent, nsproxy), *is = BPF_CORE_READ(child, nsproxy);
	u32 flags = 0;

	if (BPF_CORE_READ(parent, real_cred, user_ns) != BPF_CORE_READ(child, real_cred, user_ns))
		flags |= 0x10000000; /* CLONE_NEWUSER */
	if (was == is)
		return flags;
	if (BPF_CORE_READ(was, mnt_ns) != BPF_CORE_READ(is, mnt_ns))
		flags |= 0x20000; /* CLONE_NEWNS */
	if (BPF_CORE_READ(was, cgroup_ns) != BPF_CORE_READ(is, cgroup_ns))
		flags |= 0x02000000; /* CLONE_NEWCGROUP */
	if (BPF_CORE_READ(was, uts_ns) != BPF_CORE_READ(is, uts_ns))
		flags |= 0x04000000; /* CLONE_NEWUTS */
	if (BPF_CORE_READ(was, ipc_ns) != BPF_CORE_READ(is, ipc_ns))
		flags |= 0x08000000; /* CLONE_NEWIPC */
	if (BPF_CORE_READ(was, pid_ns_for_children) != BPF_CORE_READ(is, pid_ns_for_children))
		flags |= 0x20000000; /* CLONE_NEWPID */
	if (BPF_CORE_READ(was, net_ns) != BPF_CORE_READ(is, net_ns))
		flags |= 0x40000000; /* CLONE_NEWNET */
	if (bpf_core_field_exists(was->time_ns_for_children) &&
		BPF_CORE_READ(was, time_ns_for_children) != BPF_CORE_READ(is, time_ns_for_children))
		flags |= 0x80; /* CLONE_NEWTIME */
	return flags;
}

/* Keeps them for the exit of the call that forked. */
__noinline int note_namespaces(u32 flags)
{
	struct notes *kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0,
		flags ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);

	if (kept)
		kept->namespaces = flags;
	return 0;
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct cgroup *cg = BPF_CORE_READ(child, cgroups, dfl_cgrp);
	u32 tgid = BPF_CORE_READ(child, tgid), tid = BPF_CORE_READ(child, pid), unknown = 0, i;
	u64 id = BPF_CORE_READ(cg, kn, id);
	struct scope from = {}, *e;
	struct member to = {}, *parent_is;
	struct scratch *s;

	if (FIELD(parent, struct task_struct, flags) & WQ_WORKER)
		return note_helper((u64)parent, tid);
	/* The child's cgroup counts: CLONE_INTO_CGROUP starts a run. It also leads
	 * out of one, without a move. */
	e = scope_here();
	if (e)
		from = to.in = *e;
	if (id != from.cgroup && (e = scope_of(id, (u64)cg)))
		to.in = *e;
	if (!(from.n | to.in.n) || !(s = scratch(CTX_TASK)))
		return 0;
	/* Made just before its process was moved into a session, which counted it. */
	if (tid != tgid && (parent_is = bpf_map_lookup_elem(&members, &tgid)) &&
		BPF_CORE_READ(child, start_boottime) < parent_is->joined)
		return 0;
	if (from.n)
		note_namespaces(new_namespaces((u64)parent, (u64)child));
	if (BPF_CORE_READ(child, mm) == BPF_CORE_READ(parent, mm) && !is_vfork())
		to.shared = SHARED_MEMORY;
	if (BPF_CORE_READ(child, files) == BPF_CORE_READ(parent, files))
		to.shared |= SHARED_DESCRIPTORS;
	if (to.shared) {
		u32 of = BPF_CORE_READ(parent, tgid);

		if ((parent_is = bpf_map_lookup_elem(&members, &of)))
			parent_is->shared |= to.shared;
	}
	if (to.in.n && tid == tgid)
		unknown = bpf_map_update_elem(&members, &tgid, &to, BPF_ANY) != 0;
	for (i = 0; i < DEPTH && i < to.in.n; i++) {
		s->session = number(&to.in, i);
		report_fork(s, (u64)child, holds(&from, to.in.handle[i]), 1, unknown);
	}
	if (id == from.cgroup)
		return 0;
	for (i = 0; i < DEPTH && i < from.n; i++) {
		if (holds(&to.in, from.handle[i]))
			continue;
		s->session = number(&from, i);
		report_fork(s, (u64)child, 1, 0, 0);
	}
	return 0;
}

__noinline int report_exit(struct scratch *s, u32 last)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct counter *c, *made;
	struct signal_struct *sig;

	if (!s || !(c = cell(s->session, H_EXIT)))
		return 0;
	c->fired++;
	if (p->flags & 0x10 /* PF_IO_WORKER */ && (made = cell(s->session, H_FORK))) {
		/* A thread of io_uring's, which is made without the tracepoint. */
		made->fired++;
		made->filtered++;
	}
	drop_pending(s->session, p->pid);
	if (!last) {
		c->filtered++;
		return 0;
	}
	sig = BPF_CORE_READ(p, signal);
	begin(s, CTX_TASK, K_EXIT, H_EXIT);
	/* As wait_task_zombie in kernel/exit.c; 4 is SIGNAL_GROUP_EXIT. */
	s->r.arg[0] = BPF_CORE_READ(sig, flags) & 4 ? BPF_CORE_READ(sig, group_exit_code) :
		BPF_CORE_READ(p, group_leader, exit_code);
	emit(s, 0);
	return 0;
}

#define MADE 0302 /* O_RDWR | O_CREAT | O_EXCL, as fs/coredump.c has them at least */

/* Reports the core dump of the current task to the session at hand. */
__noinline int report_dump(struct scratch *s, struct notes *kept)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct given a = {.at = IN_AT, .from = IN_AT}, b = {};
	u32 end;

	if (!s || !kept || count_fired(s->session, H_OPEN))
		return 0;
	s->kind = K_OPENAT;
	s->hook = H_OPEN;
	s->nr = s->is32 = s->name = s->has_slot = 0;
	s->ret = 0;
	s->bits = B_COPIED | B_CREATED | B_CORE;
	if (!(BPF_CORE_READ(t, signal, group_exit_code) & 0x80))
		s->bits |= B_NO_RESULT; /* none that is whole */
	__builtin_memset(s->arg, 0, sizeof(s->arg));
	s->recorded = ALL_ARGS;
	s->arg[2] = MADE;
	a.len = kept->note[0].len & 4095;
	bpf_probe_read_kernel(&s->data[IN_AT], a.len + 1, kept->note[0].name);
	root_of(t, &a.root);
	if (s->data[IN_AT] == '/')
		a.base = a.root;
	else
		here(t, &a.base);
	begin_call(s);
	end = put_given(s, 0, S_PATH, ROOM_AT, &a);
	send_names(s, end, &a, &b);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(exited)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct scope *in = scope_here();
	struct notes *kept;
	struct scratch *s;
	u32 tgid, last, i;

	if (!in || !(s = scratch(CTX_TASK)))
		return 0;
	if (!in->n && FIELD(FIELD(p, struct task_struct, real_parent), struct task_struct, flags) & WQ_WORKER)
		return report_kernel_exec(s, 0);
	if (!in->n)
		return 0;
	kept = bpf_task_storage_get(&notes, p, 0, 0);
	if (kept && (kept->call != DUMPED || !kept->n))
		kept = 0;
	/* A process ends with its last thread. Two that go at the same time may both
	 * find nobody left: whoever takes the process out of members was the last. */
	tgid = p->tgid;
	last = !BPF_CORE_READ(p, signal, live.counter) && !bpf_map_delete_elem(&members, &tgid);
	for (i = 0; i < DEPTH && i < in->n; i++) {
		s->session = number(in, i);
		if (kept)
			report_dump(s, kept);
		report_exit(s, last);
	}
	return 0;
}

#define MAX_THREADS (1 << 22) /* PID_MAX_LIMIT */

struct threads {
	u64 at, head;
	u32 n;
};

static long count_thread(u32 i, void *arg)
{
	struct threads *all = arg;
	struct list_head *node = (void *)all->at;
	struct task_struct *t = (void *)node - bpf_core_field_offset(struct task_struct, thread_node);

	if (!node || all->at == all->head)
		return 1;
	if (!(BPF_CORE_READ(t, flags) & (4 | 0x10) /* PF_EXITING, PF_IO_WORKER */))
		all->n++;
	all->at = (u64)BPF_CORE_READ(node, next);
	return 0;
}

/* How many threads of a task's process were moved with it. Forks and exits wait for the move: a thread that was
 * exiting stays where it was, and one of io_uring's counts for nothing, see report_exit. */
__noinline u32 threads_of(u64 task)
{
	struct task_struct *t = (void *)task;
	struct signal_struct *sig = BPF_CORE_READ(t, signal);
	struct threads all = {.head = (u64)sig + bpf_core_field_offset(struct signal_struct, thread_head)};

	all.at = (u64)BPF_CORE_READ(sig, thread_head.next);
	bpf_loop(MAX_THREADS, count_thread, &all, 0);
	return all.n;
}

/* Reports a move, of s->tasks tasks, to the session at hand. */
__noinline int report_move(struct scratch *s, u32 kind, u64 moved, u64 dst, u64 path)
{
	struct cgroup *to = (void *)dst;
	struct task_struct *task = (void *)moved;
	struct session *own = session(s ? s->session : 0);
	struct scope *here;
	struct counter *c;

	if (!s || !(c = cell(s->session, H_MOVED)))
		return 0;
	c->fired++;
	if (!kind) { /* within the session */
		c->filtered++;
		return 0;
	}
	begin(s, CTX_TASK, kind, H_MOVED);
	s->r.tgid = BPF_CORE_READ(task, tgid);
	s->r.tid = BPF_CORE_READ(task, pid);
	s->r.ppid = BPF_CORE_READ(task, real_parent, tgid);
	s->r.start = BPF_CORE_READ(task, group_leader, start_boottime);
	s->r.cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	s->r.mode = mounts_of(task);
	s->r.arg[0] = BPF_CORE_READ(to, root, hierarchy_id);
	s->r.arg[1] = BPF_CORE_READ(to, kn, id);
	s->r.arg[3] = s->tasks;
	here = scope_here(); /* who moves it; one that moves itself is in the new cgroup already */
	s->r.arg[2] = own && here && bpf_get_current_task_btf()->tgid != s->r.tgid && holds(here, own->handle);
	emit(s, kernel_str(s, 0, S_NAME, path));
	return 0;
}

/* The tracepoint fires when the migration is done and the task's former cgroup
 * is no longer known, so members remembers who belonged to which session. It fires
 * for every hierarchy, dst being of that one; the task's own cgroup2 decides. */
SEC("raw_tp/cgroup_attach_task")
int BPF_PROG(moved, struct cgroup *dst, const char *path, struct task_struct *task, bool all)
{
	u32 tgid = BPF_CORE_READ(task, tgid), within = 0, i;
	struct cgroup *cg = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	struct member was = {}, now = {}, *member = bpf_map_lookup_elem(&members, &tgid);
	struct scope *e;
	struct scratch *s;

	/* A limit of the session may be one of this hierarchy. */
	if (BPF_CORE_READ(dst, root, hierarchy_id))
		within = K_MOVED_V1;
	/* A task that is no member and is exiting has ended for us: until it is reaped, it
	 * stays in its cgroup, and may still be moved. On another hierarchy nobody joins. */
	if (!member && (within || BPF_CORE_READ(task, flags) & 4 /* PF_EXITING */))
		return 0;
	if (member)
		was = *member;
	if ((e = scope_of(BPF_CORE_READ(cg, kn, id), (u64)cg)))
		now.in = *e;
	now.shared = was.shared;
	now.joined = was.joined;
	if (!(was.in.n | now.in.n) || !(s = scratch(CTX_TASK)))
		return 0;
	s->tasks = all ? threads_of((u64)task) : 1;
	for (i = 0; i < DEPTH && i < was.in.n; i++) {
		struct session *own;

		s->session = number(&was.in, i);
		own = session(s->session);
		if (own && own->handle == was.in.handle[i]) /* it has not ended since */
			report_move(s, holds(&now.in, was.in.handle[i]) ? within : K_LEAVE, (u64)task, (u64)dst, (u64)path);
	}
	for (i = 0; i < DEPTH && i < now.in.n; i++) {
		s->session = number(&now.in, i);
		if (holds(&was.in, now.in.handle[i]))
			continue;
		now.joined = bpf_ktime_get_boot_ns();
		report_move(s, K_JOIN, (u64)task, (u64)dst, (u64)path);
	}
	if (!now.in.n)
		bpf_map_delete_elem(&members, &tgid);
	else if (bpf_map_update_elem(&members, &tgid, &now, BPF_ANY))
		for (i = 0; i < DEPTH && i < now.in.n; i++)
			count_loss(number(&now.in, i), H_MOVED);
	return 0;
}

/* Whether the current call queues a signal with a code that the caller chooses. */
static __always_inline int queues_signals(void)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u32 nr;

#if defined(__TARGET_ARCH_x86)
	nr = (u32)BPF_CORE_READ(regs, orig_ax);
	if (bpf_get_current_task_btf()->thread_info.status & 2) /* TS_COMPAT */
		return nr == 178 || nr == 335 || nr == 424;
	return nr == 129 || nr == 297 || nr == 424; /* rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal */
#else
	nr = (u32)BPF_CORE_READ(regs, syscallno);
	return nr == 138 || nr == 240 || nr == 424;
#endif
}

enum sent { NOBODYS, SENT, SENT_BY_KERNEL, SENT_IF_ASKED };

/* Who sent a signal. That of a child's end is no act, and that of a timer is its owner's. Others that the kernel sends
 * are acts of the current task, such as the kill of a cgroup. But an interrupt can send one while any task runs: then
 * it is an act only if the session asked for such signals. */
static __always_inline u32 sent_by(int sig, struct kernel_siginfo *info)
{
	u32 plain = (u64)info < 4096;
	s32 code = 0;

	if (!plain) {
		code = BPF_CORE_READ(info, si_code);
		if (code == -2 /* SI_TIMER */)
			return queues_signals() ? SENT : NOBODYS;
		if (code <= 0)
			return SENT;
	} else if (!info) { /* SEND_SIG_NOINFO: a process's own */
		return SENT;
	}
	if (sig == 17 /* SIGCHLD */ || sig == 14 /* SIGALRM, of a timer */)
		return NOBODYS;
	if (sig == 29 /* SIGIO */ || sig == 23 /* SIGURG */ || (!plain && code != 0x80 /* SI_KERNEL */))
		return SENT_IF_ASKED;
	return SENT_BY_KERNEL;
}

/* Reports a signal to the session at hand, whose handle is given. */
__noinline int report_signal(struct scratch *s, struct scope *there, u64 task, u32 handle, u32 sig)
{
	struct task_struct *to = (void *)task;
	struct counter *c;

	if (!s || !(c = cell(s->session, H_SIGNAL)))
		return 0;
	c->fired++;
	if (holds(there, handle)) {
		c->filtered++;
		return 0;
	}
	s->kind = K_SIGNAL;
	s->hook = H_SIGNAL;
	s->nr = s->is32 = s->bits = s->bytes = 0;
	s->about = BPF_CORE_READ(to, real_parent, tgid);
	s->ret = 0;
	s->arg[0] = BPF_CORE_READ(to, tgid);
	s->arg[1] = sig;
	s->recorded = 3;
	s->how = mix(s->arg[0], sig);
	return report_args(s);
}

/* The sessions of a task. */
__noinline int scope_of_task(struct scope *to, u64 task)
{
	struct task_struct *t = (void *)task;
	struct cgroup *cg = BPF_CORE_READ(t, cgroups, dfl_cgrp);

	return copy_scope(to, BPF_CORE_READ(cg, kn, id), (u64)cg);
}

/* A signal that the kernel sends the current process for a limit that a session's process has given it. */
__noinline int report_limit(u64 task, u32 sig)
{
	struct task_struct *to = (void *)task;
	u32 tgid = BPF_CORE_READ(to, tgid), i;
	struct limit *found = bpf_map_lookup_elem(&limits, &tgid), l;
	struct scope there = {};
	struct scratch *s;

	if (!found || tgid != bpf_get_current_task_btf()->tgid || (sig != 9 && sig != 24 /* SIGXCPU */ && sig != 25) ||
		!(s = scratch(CTX_SIGNAL)))
		return 0;
	l = *found;
	scope_of_task(&there, task);
	for (i = 0; i < DEPTH && i < l.in.n; i++) {
		struct session *own;

		s->session = number(&l.in, i);
		own = session(s->session);
		if (!own || own->handle != l.in.handle[i]) /* it has ended since */
			continue;
		s->is_other = 1;
		s->who = l.who;
		report_signal(s, &there, task, l.in.handle[i], sig);
		s->is_other = 0;
	}
	return 0;
}

/* A signal that a process of a session sends, or has the kernel send, to a process outside. If the kernel sends it
 * unasked and the process ignores it, it is none. */
SEC("raw_tp/signal_generate")
int BPF_PROG(signalled, int sig, struct kernel_siginfo *info, struct task_struct *to, int group, int result)
{
	struct scope from = {}, there = {};
	u32 by = sent_by(sig, info), i;
	struct scratch *s;

	if (by == NOBODYS || (by == SENT_BY_KERNEL && result == 1 /* TRACE_SIGNAL_IGNORED */))
		return 0;
	copy_scope(&from, bpf_get_current_cgroup_id(), 0);
	if (!from.n)
		return by == SENT_BY_KERNEL || !info ? report_limit((u64)to, sig) : 0;
	scope_of_task(&there, (u64)to);
	if (!(s = scratch(CTX_SIGNAL)))
		return 0;
	for (i = 0; i < DEPTH && i < from.n; i++) {
		struct session *own;

		s->session = number(&from, i);
		own = session(s->session);
		if (own && (by != SENT_IF_ASKED || own->asked))
			report_signal(s, &there, (u64)to, from.handle[i], sig);
	}
	return 0;
}

#endif
