/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Exec: the committed arguments, the names in the environment, the image. */
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

/* Reads one environment entry behind the names kept so far, and keeps its name
 * only: what follows the '=' is overwritten by the next entry or cut off. Where
 * there is no room for more names, entries are still looked at: a tool call's
 * is often the last. */
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
		s->r.bits |= B_ENV_CUT; /* a name longer than we look */
	}
	e->inside = n == PEEK;
	e->at += n - e->inside;
	return 0;
bad:
	s->r.bits |= B_ENV_CUT | B_FAILED_READ;
	return 1;
}

/* Reads an id behind what is kept. A longer one is none: cut, it might be that of
 * another call. */
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

/* Tells session i of a program that the kernel starts by itself, outside of every
 * session: somebody may have told it to. */
static long kernel_exec(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct session *own = session(i);

	s->session = i;
	if (!own || !own->cgroup || count_fired(i, H_EXEC))
		return 0;
	begin(s, CTX_TASK, K_KERNEL_EXEC, H_EXEC);
	emit(s, kernel_str(s, 0, S_NAME, s->kernel_exec));
	return 0;
}

__noinline int report_kernel_exec(struct scratch *s, u64 filename)
{
	if (!s)
		return 0;
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

	if (in && !in->n && BPF_CORE_READ(p, tgid) != 1 && BPF_CORE_READ(p, real_parent, flags) & 0x200000 /* PF_KTHREAD */ && (s = scratch(CTX_TASK)))
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
