/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Processes: exec, fork, exit, and leaving the session cgroup. */
#ifndef ASSAY_PROCESS_H
#define ASSAY_PROCESS_H
#include "path.h"

#define INLINE_ARGS 4096
#define CHUNK 16384
#define MAX_ARGS (128 << 10)
#define MAX_ENV_KEYS 8192

/* The session's processes by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} members SEC(".maps");

/* One K_EXEC_ARGS record: arg[0] is its offset in the argument area. */
static long send_args(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct copy_args *a = &s->args;
	struct counter *c = cell(H_EXEC_ARGS);
	u64 n = a->to - a->from;

	if (!n || !c)
		return 1;
	if (n > CHUNK)
		n = CHUNK;
	c->fired++;
	s->r.kind = K_EXEC_ARGS;
	s->r.hook = H_EXEC_ARGS;
	s->r.bits = 0;
	s->r.arg[0] = a->done;
	s->r.seg[S_NAME] = n;
	if (bpf_probe_read_user(s->data, n, (void *)a->from)) {
		s->r.bits = B_FAILED_READ;
		s->r.seg[S_NAME] = n = 0;
		a->from = a->to;
	}
	emit(s, c, n);
	a->from += n;
	a->done += n;
	return 0;
}

#define PEEK 256

static long find_equals(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;

	s->env.len = i;
	return s->data[(s->env.off + i) & (DATA - 1)] == '=';
}

/* Reads one environment entry behind the names kept so far, and keeps its name
 * only: what follows the '=' is overwritten by the next entry or cut off. */
static long env_entry(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct env *e = &s->env;
	u8 *p = &s->data[e->off & (DATA - 1)];
	u32 len;
	long n;

	if (e->at >= e->end)
		return 1;
	if (e->off - e->start > MAX_ENV_KEYS - PEEK) {
		s->r.bits |= B_ENV_CUT;
		return 1;
	}
	if (e->inside) {
		n = bpf_probe_read_user_str(p, 4096, (void *)e->at);
		if (n < 0)
			goto bad;
		if (n == 0)
			n = 1;
		e->inside = n == 4096;
		e->at += n - e->inside;
		return 0;
	}
	n = bpf_probe_read_user_str(p, PEEK, (void *)e->at);
	if (n < 0)
		goto bad;
	if (n == 0) { /* an empty entry, on older kernels */
		e->at++;
		return 0;
	}
	if (bpf_loop(n, find_equals, arg, 0) == n) /* the last byte is the NUL */
		e->len = PEEK;
	len = e->len;
	if (len < n) {
		if (len == 18 && !__builtin_memcmp(p, "ASSAY_TOOL_CALL_ID", 18))
			e->tool = e->at + 19;
		if (len == 11 && !__builtin_memcmp(p, "TRACEPARENT", 11))
			e->trace = e->at + 12;
		e->off += len;
		s->data[e->off & (DATA - 1)] = 0;
		e->off++;
	} else if (n == PEEK) {
		s->r.bits |= B_ENV_CUT; /* a name longer than we look */
	}
	e->inside = n == PEEK;
	e->at += n - e->inside;
	return 0;
bad:
	s->r.bits |= B_ENV_CUT | B_FAILED_READ;
	return 1;
}

__noinline u32 user_str(struct scratch *s, u32 off, u32 seg, u64 from)
{
	const u32 max = 129;
	long n;

	if (!s)
		return 0;
	n = bpf_probe_read_user_str(&s->data[off & (DATA - 1)], max, (void *)from);

	if (n < 0) {
		s->r.bits |= B_FAILED_READ;
		return off;
	}
	if (n > 0)
		n--;
	if (n >= max - 1)
		s->r.bits |= B_ENV_CUT;
	s->r.seg[seg & (S_COUNT - 1)] = n;
	return off + n;
}

__noinline u32 kernel_str(struct scratch *s, u32 off, u32 seg, u64 from)
{
	long n;

	if (!s)
		return 0;
	n = bpf_probe_read_kernel_str(&s->data[off & (DATA - 1)], 4096, (void *)from);

	if (n <= 0) {
		s->r.bits |= B_FAILED_READ;
		return off;
	}
	s->r.seg[seg & (S_COUNT - 1)] = n - 1;
	return off + n - 1;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(execed, struct task_struct *p, int old_pid, struct linux_binprm *bprm)
{
	struct counter *c;
	struct scratch *s;
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct file *file;
	struct path at = {};
	struct inode *inode;
	struct env *e;
	u32 off = 0, next;
	u64 from, len;

	if (!in_scope())
		return 0;
	c = cell(H_EXEC);
	s = scratch(CTX_TASK);
	if (!c || !s)
		return 0;
	c->fired++;
	begin(s, CTX_TASK, K_EXEC, H_EXEC);
	mm = BPF_CORE_READ(p, mm);
	file = BPF_CORE_READ(bprm, file);
	fs = BPF_CORE_READ(p, fs);
	from = s->args.from = BPF_CORE_READ(mm, arg_start);
	s->args.to = BPF_CORE_READ(mm, arg_end);
	s->args.done = 0;
	len = s->args.to - from;
	if (len > INLINE_ARGS) {
		if (len > MAX_ARGS)
			s->args.to = from + MAX_ARGS;
		bpf_loop(MAX_ARGS / CHUNK, send_args, &s, 0);
		s->r.kind = K_EXEC;
		s->r.hook = H_EXEC;
		s->r.bits = len > MAX_ARGS ? B_ARGS_CUT : 0;
		__builtin_memset(s->r.seg, 0, sizeof(s->r.seg));
	}
	s->r.arg[0] = old_pid;
	s->r.arg[1] = len;

	inode = BPF_CORE_READ(file, f_inode);
	identify(&s->r, inode);
	bpf_core_read(&at, sizeof(at), &file->f_path);
	next = walk(s, off, (u64)at.mnt, (u64)at.dentry);
	s->r.bits |= s->walk.bits;
	s->r.seg[S_PATH] = next - off;
	off = next;

	__builtin_memset(&at, 0, sizeof(at));
	bpf_core_read(&at, sizeof(at), &fs->pwd);
	next = walk_base(s, off, &at);
	s->r.seg[S_BASE] = next - off;
	off = next;

	off = kernel_str(s, off, S_PATH2, (u64)BPF_CORE_READ(bprm, filename));
	off = kernel_str(s, off, S_BASE2, (u64)BPF_CORE_READ(bprm, interp));

	if (len <= INLINE_ARGS) {
		if (bpf_probe_read_user(&s->data[off & (DATA - 1)], len & (2 * INLINE_ARGS - 1), (void *)from))
			s->r.bits |= B_FAILED_READ | B_ARGS_CUT;
		else {
			s->r.seg[S_NAME] = len;
			off += len;
		}
	}
	e = &s->env;
	e->off = e->start = off;
	e->inside = e->tool = e->trace = 0;
	e->at = BPF_CORE_READ(mm, env_start);
	e->end = BPF_CORE_READ(mm, env_end);
	if (bpf_loop(4096, env_entry, &s, 0) >= 4096)
		s->r.bits |= B_ENV_CUT;
	s->r.seg[S_ENV] = e->off - e->start;
	off = e->off;
	if (e->tool)
		off = user_str(s, off, S_TOOL, e->tool);
	if (e->trace)
		off = user_str(s, off, S_TRACE, e->trace);
	emit(s, c, off);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct cgroup *cg = BPF_CORE_READ(child, cgroups, dfl_cgrp);
	struct counter *c;
	struct scratch *s;
	struct record *r;
	u32 tgid = BPF_CORE_READ(child, tgid), tid = BPF_CORE_READ(child, pid);
	u8 one = 1;

	/* The child's cgroup counts: CLONE_INTO_CGROUP starts a run. */
	if (!cgroup_in_scope(cg))
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
	if (!r->arg[4] && bpf_map_update_elem(&members, &tgid, &one, BPF_ANY))
		r->bits |= B_FAILED_READ;
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
