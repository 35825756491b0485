/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Processes: fork, exit, and leaving the session cgroup. */
#ifndef ASSAY_PROCESS_H
#define ASSAY_PROCESS_H
#include "exec.h"

/* The session's processes by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} members SEC(".maps");

SEC("raw_tp/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct cgroup *cg = BPF_CORE_READ(child, cgroups, dfl_cgrp);
	struct counter *c;
	struct scratch *s;
	struct record *r;
	u32 tgid = BPF_CORE_READ(child, tgid), tid = BPF_CORE_READ(child, pid);
	int inside = cgroup_in_scope(cg);
	u8 one = 1;

	/* The child's cgroup counts: CLONE_INTO_CGROUP starts a run. It also leads
	 * out of one, without a move. */
	if (!inside && !in_scope())
		return 0;
	c = cell(H_FORK);
	s = scratch(CTX_TASK);
	if (!c || !s)
		return 0;
	c->fired++;
	begin(s, CTX_TASK, K_FORK, H_FORK);
	r = &s->r;
	if (!in_scope()) /* the recorder is no part of the run */
		r->tgid = r->tid = r->ppid = r->start = r->cgroup = 0;
	r->arg[0] = tgid;
	r->arg[1] = tid;
	r->arg[2] = BPF_CORE_READ(child, group_leader, start_boottime);
	r->arg[3] = BPF_CORE_READ(cg, kn, id);
	r->arg[4] = tid != tgid;
	if (inside && !r->arg[4] && bpf_map_update_elem(&members, &tgid, &one, BPF_ANY))
		r->bits |= B_FAILED_READ;
	emit(s, c, 0);
	if (inside || !(c = cell(H_MOVED)))
		return 0;
	c->fired++;
	begin(s, CTX_TASK, K_LEFT_CGROUP, H_MOVED);
	r->ppid = r->tgid;
	r->tgid = tgid;
	r->tid = tid;
	r->start = BPF_CORE_READ(child, group_leader, start_boottime);
	r->cgroup = BPF_CORE_READ(cg, kn, id);
	emit(s, c, 0);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(exited)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct signal_struct *sig;
	struct counter *c, *made;
	struct scratch *s;
	u32 tgid;

	if (!in_scope())
		return 0;
	c = cell(H_EXIT);
	s = scratch(CTX_TASK);
	if (!c || !s)
		return 0;
	c->fired++;
	if (p->flags & 0x10 /* PF_IO_WORKER */ && (made = cell(H_FORK))) {
		/* A thread of io_uring's, which is made without the tracepoint. */
		made->fired++;
		made->filtered++;
	}
	/* A process ends with its last thread. Two that go at the same time may both
	 * find nobody left: whoever takes the process out of members was the last. */
	sig = BPF_CORE_READ(p, signal);
	tgid = p->tgid;
	if (BPF_CORE_READ(sig, live.counter) || bpf_map_delete_elem(&members, &tgid)) {
		c->filtered++;
		return 0;
	}
	begin(s, CTX_TASK, K_EXIT, H_EXIT);
	/* As wait_task_zombie in kernel/exit.c; 4 is SIGNAL_GROUP_EXIT. */
	s->r.arg[0] = BPF_CORE_READ(sig, flags) & 4 ? BPF_CORE_READ(sig, group_exit_code) : BPF_CORE_READ(p, group_leader, exit_code);
	emit(s, c, 0);
	return 0;
}

/* The tracepoint fires when the migration is done and the task's former cgroup
 * is no longer known, so members remembers who belonged to the session. It fires
 * for every hierarchy, dst being of that one; the task's own cgroup2 decides. */
SEC("raw_tp/cgroup_attach_task")
int BPF_PROG(moved, struct cgroup *dst, const char *path, struct task_struct *task)
{
	u32 tgid = BPF_CORE_READ(task, tgid);
	u8 *member = bpf_map_lookup_elem(&members, &tgid), one = 1;
	struct cgroup *now = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	int inside = cgroup_in_scope(now);
	struct counter *c;
	struct scratch *s;

	if (!member && !inside)
		return 0;
	c = cell(H_MOVED);
	s = scratch(CTX_TASK);
	if (!c || !s)
		return 0;
	c->fired++;
	if (member && inside) {
		c->filtered++;
		return 0;
	}
	begin(s, CTX_TASK, inside ? K_JOINED_CGROUP : K_LEFT_CGROUP, H_MOVED);
	s->r.tgid = tgid;
	s->r.tid = BPF_CORE_READ(task, pid);
	s->r.ppid = BPF_CORE_READ(task, real_parent, tgid);
	s->r.start = BPF_CORE_READ(task, group_leader, start_boottime);
	s->r.cgroup = BPF_CORE_READ(now, kn, id);
	if (inside)
		bpf_map_update_elem(&members, &tgid, &one, BPF_ANY);
	else
		bpf_map_delete_elem(&members, &tgid);
	emit(s, c, kernel_str(s, 0, S_NAME, (u64)path));
	return 0;
}

#endif
