/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Executions: the arguments, the names in the environment, the image. */
#ifndef ASSAY_EXEC_H
#define ASSAY_EXEC_H
#include "path.h"
#include "sessions.h"

#define INLINE_ARGS 4096
#define CHUNK 16384
#define MAX_ARGS (128 << 10)
#define MAX_ENV_KEYS 8192
#define MAX_ENV 32768 /* entries that are looked at */
#define MAX_ID 128

/* One K_EXEC_ARGS record: arg[0] is its offset in the argument area. */
static long send_args(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct copy_args *a = &s->args;
	u64 n = a->to - a->from;

	if (!n || count_fired(s->session, H_EXEC_ARGS))
		return 1;
	if (n > CHUNK)
		n = CHUNK;
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
	emit(s, n);
	a->from += n;
	a->done += n;
	return 0;
}

#define PEEK 256

/* Looks at eight bytes of an entry. */
static long find_equals(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	u64 w = get8(&s->data[(s->env.off + i * 8) & (DATA - 1)]) ^ REPEAT('='), found = HAS_ZERO(w);

	if (!found)
		return 0;
	s->env.len = i * 8 + FIRST(found);
	return 1;
}

/* Reads one environment entry behind the names kept so far, and keeps only its name:
 * the next entry overwrites what follows the '='. If there is no room for more names,
 * entries are still looked at, because that of a tool call is often the last. */
static long env_entry(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct env *e = &s->env;
	u8 *p = &s->data[e->off & (DATA - 1)];
	u32 len;
	long n;

	if (e->at >= e->end)
		return 1;
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
	e->len = PEEK;
	bpf_loop((n + 7) / 8, find_equals, arg, 0); /* or in what is left behind the NUL */
	len = e->len;
	if (len < n) {
		if (len == 18 && !__builtin_memcmp(p, "ASSAY_TOOL_CALL_ID", 18))
			e->tool = e->at + 19;
		if (len == 11 && !__builtin_memcmp(p, "TRACEPARENT", 11))
			e->trace = e->at + 12;
		if (e->off - e->start > MAX_ENV_KEYS - PEEK) {
			s->r.bits |= B_ENV_CUT;
		} else {
			e->off += len;
			s->data[e->off & (DATA - 1)] = 0;
			e->off++;
		}
	} else if (n == PEEK) {
		s->r.bits |= B_ENV_CUT; /* a name that is longer than what is read */
	}
	e->inside = n == PEEK;
	e->at += n - e->inside;
	return 0;
bad:
	s->r.bits |= B_ENV_CUT | B_FAILED_READ;
	return 1;
}

/* Reads an id behind what is kept. One that is too long is ignored: its beginning might be
 * the id of another call. */
__noinline u32 user_str(struct scratch *s, u32 off, u32 seg, u64 from)
{
	const u32 max = MAX_ID + 2; /* with its NUL, and one byte too much */
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
	if (n > MAX_ID) {
		s->r.bits |= B_ENV_CUT;
		return off;
	}
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

#define AT_BASE 7 /* linux/auxvec.h */
#define AUXV_ENTRIES 24 /* that are looked at: AT_BASE is among the first twelve */

static long mapped_file(struct task_struct *t, struct vm_area_struct *v, void *path)
{
	struct file *f = BPF_CORE_READ(v, vm_file);

	if (f)
		bpf_core_read(path, sizeof(struct path), &f->f_path);
	return 0;
}

/* The file that the kernel has mapped to begin the program (PT_INTERP), if there is one: where the new process is told
 * that it is. The vector is read to off. Returns less than 0 if that file could not be found. */
__noinline int find_loader(struct scratch *s, u32 off, u64 memory, struct path *loader)
{
	struct mm_struct *mm = (void *)memory;
	struct path at = {};
	u64 base = 0;
	u32 i, words;
	u8 *e;

	if (!s || !loader)
		return 0;
	words = BPF_CORE_READ(mm, task_size) >> 32 ? 8 : 4; /* a 32-bit program's are half as long */
	if (bpf_probe_read_kernel(&s->data[off & (DATA - 1)], AUXV_ENTRIES * 16,
		(void *)mm + bpf_core_field_offset(struct mm_struct, saved_auxv)))
		return -1;
#pragma clang loop unroll(disable)
	for (i = 0; i < AUXV_ENTRIES; i++) {
		e = &s->data[(off + 2 * words * i) & (DATA - 1)];
		if (words == 4 && *(u32 *)e == AT_BASE)
			base = *(u32 *)(e + 4);
		else if (words == 8 && get8(e) == AT_BASE)
			base = get8(e + 8);
	}
	if (!base)
		return 0;
	if (bpf_find_vma(bpf_get_current_task_btf(), base, mapped_file, &at, 0) || !at.dentry)
		return -1;
	*loader = at;
	return 0;
}

/* Reports an exec to the session at hand. */
__noinline int report_exec(struct scratch *s, u64 task, u32 old_pid, u64 binprm)
{
	struct linux_binprm *bprm = (void *)binprm;
	struct task_struct *p = (void *)task;
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct file *file;
	struct path at = {};
	struct inode *inode;
	struct env *e;
	u32 off = 0, next;
	u64 from, len;

	if (!s || count_fired(s->session, H_EXEC))
		return 0;
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
	at.dentry = 0;
	if (find_loader(s, off, (u64)mm, &at))
		s->r.bits |= B_FAILED_READ;
	else if (at.dentry) { /* a walk, behind the name and a NUL */
		s->data[off & (DATA - 1)] = 0;
		next = walk(s, off + 1, (u64)at.mnt, (u64)at.dentry);
		if (s->walk.bits & (B_TRUNCATED | B_FAILED_READ))
			s->r.bits |= B_FAILED_READ;
		s->r.seg[S_BASE2] += next - off;
		off = next;
	}

	if (len <= INLINE_ARGS) {
		asm volatile("" : "+r"(len)); /* or the compiler proves the mask away */
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
	if (bpf_loop(MAX_ENV, env_entry, &s, 0) >= MAX_ENV)
		s->r.bits |= B_ENV_CUT;
	s->r.seg[S_ENV] = e->off - e->start;
	off = e->off;
	if (e->tool)
		off = user_str(s, off, S_TOOL, e->tool);
	if (e->trace)
		off = user_str(s, off, S_TRACE, e->trace);
	emit(s, off);
	return 0;
}

#define WQ_WORKER 0x20 /* PF_WQ_WORKER */

/* A program that the kernel starts by itself, from the fork of its process to its execution:
 * the task that it is started for, and its sessions, if they are known. */
struct helper {
	u64 info; /* the struct subprocess_info */
	u32 known; /* who waits for it */
	u32 ran;
	struct scope in;
	struct owner who;
};

/* By tid. If the execution fails, the entry stays until its room is needed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct helper);
} helpers SEC(".maps");

/* The program that a task of a workqueue is about to start, 0 for none. */
static __always_inline u64 work_of(struct task_struct *t)
{
	struct kthread *k;
	struct worker *w;

	if (bpf_core_field_exists(t->worker_private))
		k = BPF_CORE_READ(t, worker_private);
	else
		k = (void *)BPF_CORE_READ(t, set_child_tid);
	w = BPF_CORE_READ(k, data);
	return (u64)BPF_CORE_READ(w, current_work) - bpf_core_field_offset(struct subprocess_info, work);
}

/* Finds the task that waits until the program has started, or has ended, if there is one. */
__noinline int find_asker(struct helper *h)
{
	struct subprocess_info *info;
	struct completion *done;
	struct task_struct *t;
	struct list_head *at;
	struct cgroup *cg;
	struct scope *in;

	if (!h)
		return 0;
	info = (void *)h->info;
	done = BPF_CORE_READ(info, complete);
	if (!done)
		return 0;
	at = BPF_CORE_READ(done, wait.task_list.next);
	if (!at || (u64)at == (u64)done + bpf_core_field_offset(struct completion, wait.task_list))
		return 0;
	t = BPF_CORE_READ((struct swait_queue *)((void *)at - bpf_core_field_offset(struct swait_queue, task_list)), task);
	cg = BPF_CORE_READ(t, cgroups, dfl_cgrp);
	if (!cg)
		return 0;
	h->known = 1;
	h->who.start = BPF_CORE_READ(t, group_leader, start_boottime);
	h->who.cgroup = BPF_CORE_READ(cg, kn, id);
	h->who.tgid = BPF_CORE_READ(t, tgid);
	h->who.tid = BPF_CORE_READ(t, pid);
	h->who.ppid = BPF_CORE_READ(t, real_parent, tgid);
	in = scope_of(h->who.cgroup, (u64)cg);
	if (in)
		h->in = *in;
	return 0;
}

/* Keeps which task asked for the program for which a workqueue forks a process. */
__noinline int note_helper(u64 worker, u32 child)
{
	struct helper h = {.info = work_of((void *)worker)};

	find_asker(&h);
	bpf_map_update_elem(&helpers, &child, &h, BPF_ANY);
	return 0;
}

enum asked { ASKED_NOT, ASKED, ASKED_MAYBE };

/* Reports to session i a program that the kernel starts by itself, outside of every
 * session. arg[0] says whether a task of the session waits for it, as enum asked. */
static long kernel_exec(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct session *own = session(i);
	u32 asked = s->asked_known ? ASKED_NOT : ASKED_MAYBE, j;

	s->session = i;
	if (!own || !own->cgroup || count_fired(i, H_EXEC))
		return 0;
#pragma unroll
	for (j = 0; j < DEPTH; j++)
		if (s->asked[j] && s->asked[j] == own->handle)
			asked = ASKED;
	s->is_other = asked == ASKED;
	begin(s, CTX_TASK, K_KERNEL_EXEC, H_EXEC);
	s->is_other = 0;
	s->r.arg[0] = asked;
	emit(s, kernel_str(s, 0, S_NAME, s->kernel_exec));
	return 0;
}

/* Reports the current task's program, which the kernel started, when it is executed. If
 * nobody is known to wait for it then, it is reported when it ends. */
__noinline int report_kernel_exec(struct scratch *s, u64 filename)
{
	u32 tid = bpf_get_current_task_btf()->pid, i;
	struct helper *h = bpf_map_lookup_elem(&helpers, &tid);
	struct subprocess_info *info;

	if (!s || (!filename && (!h || !h->ran)))
		return 0;
	s->asked_known = 0;
	__builtin_memset(s->asked, 0, sizeof(s->asked));
	if (h) {
		find_asker(h);
		if (filename && !h->known && BPF_CORE_READ(bpf_get_current_task_btf(), real_parent, flags) & WQ_WORKER) {
			h->ran = 1; /* the task that asked has not begun to wait yet, and will wait for the end */
			return 0;
		}
		info = (void *)h->info;
		if (!filename)
			filename = (u64)BPF_CORE_READ(info, path);
		s->asked_known = h->known;
		s->who = h->who;
#pragma unroll
		for (i = 0; i < DEPTH; i++)
			s->asked[i] = i < h->in.n ? h->in.handle[i] : 0;
		bpf_map_delete_elem(&helpers, &tid);
	}
	s->kernel_exec = filename;
	bpf_loop(1 << SESSION_BITS, kernel_exec, &s, 0);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(execed, struct task_struct *p, int old_pid, struct linux_binprm *bprm)
{
	struct scope *in = scope_here();
	struct member *m;
	struct scratch *s;
	u32 i, tgid;

	if (in && !in->n && BPF_CORE_READ(p, tgid) != 1 &&
		BPF_CORE_READ(p, real_parent, flags) & 0x200000 /* PF_KTHREAD */ && (s = scratch(CTX_TASK)))
		return report_kernel_exec(s, (u64)BPF_CORE_READ(bprm, filename));
	if (!in || !in->n || !(s = scratch(CTX_TASK)))
		return 0;
	tgid = bpf_get_current_task_btf()->tgid;
	if ((m = bpf_map_lookup_elem(&members, &tgid)))
		m->shared = 0; /* its memory is new */
	for (i = 0; i < DEPTH && i < in->n; i++) {
		s->session = number(in, i);
		report_exec(s, (u64)p, old_pid, (u64)bprm);
	}
	return 0;
}

#endif
