/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls. One program sits on sys_exit, looks the number up in the table
 * that user space filled in, tests the scope and jumps to one of a few
 * handlers. Arguments come from the registers saved on entry, which the kernel
 * keeps until exit. */
#ifndef ASSAY_SYSCALLS_H
#define ASSAY_SYSCALLS_H
#include "report.h"

SEC("raw_tp/sys_exit")
int BPF_PROG(sys_exit, u64 entry, long ret)
{
	volatile const struct syscall *d;
	struct task_struct *t = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(t); /* entry, but of a known type */
	struct scratch *s;
	u32 is32 = 0, prog;
	u64 nr;

#if defined(__TARGET_ARCH_x86)
	nr = (u32)regs->orig_ax;
	is32 = t->thread_info.status & 2; /* TS_COMPAT */
#else
	nr = (u32)regs->syscallno;
	is32 = t->thread_info.flags >> 22 & 1; /* TIF_32BIT */
#endif
	if (nr >= NSYS) {
		/* The x32 calls have this bit. They are counted, not decoded. */
		if (nr & 0x40000000 && in_scope()) {
			struct counter *c = cell(H_COMPAT);

			if (c) {
				c->fired++;
				c->filtered++;
			}
		}
		return 0;
	}
	d = is32 ? &syscalls32[nr] : &syscalls[nr];
	prog = d->prog;
	if (!prog)
		return 0;
	if (!in_scope())
		return 0;
	s = scratch(CTX_SYSCALL);
	if (!s)
		return 0;
	s->nr = nr;
	s->is32 = is32;
	s->sel = nr;
	s->ret = ret;
#if defined(__TARGET_ARCH_x86)
	if (is32) {
		s->arg[0] = (u32)regs->bx;
		s->arg[1] = (u32)regs->cx;
		s->arg[2] = (u32)regs->dx;
		s->arg[3] = (u32)regs->si;
		s->arg[4] = (u32)regs->di;
		s->arg[5] = (u32)regs->bp;
		s->ret = (s32)ret;
	} else {
		s->arg[0] = regs->di;
		s->arg[1] = regs->si;
		s->arg[2] = regs->dx;
		s->arg[3] = regs->r10;
		s->arg[4] = regs->r8;
		s->arg[5] = regs->r9;
	}
#else
	s->arg[0] = regs->orig_x0;
	s->arg[1] = regs->regs[1];
	s->arg[2] = regs->regs[2];
	s->arg[3] = regs->regs[3];
	s->arg[4] = regs->regs[4];
	s->arg[5] = regs->regs[5];
	if (is32)
		s->ret = (s32)ret;
#endif
	bpf_tail_call(ctx, &progs, prog == P_SOCKET ? T_SOCKETS : T_FILES);
	return 0;
}

__noinline int on_open(struct scratch *s)
{
	u64 f;

	if (!s)
		return 0;
	if (s->nr == OPENAT2)
		read_how(s);
	if (s->ret < 0)
		return report_names(s);
	f = file_of(s->ret);
	if (!f) /* closed by another thread before we looked */
		return report_names(s);
	return report_file(s, f);
}

/* Calls that take names. */
__noinline int on_path(struct scratch *s)
{
	u32 kind;

	if (!s)
		return 0;
	kind = row(s)->kind;
	if (kind == K_EXEC_FAILED && s->ret >= 0)
		return filter(s); /* sched_process_exec has it */
	if (kind == K_UNLINK && row(s)->dfd != NOARG && s->arg[2] & 0x200)
		kind = K_RMDIR; /* unlinkat with AT_REMOVEDIR */
	if (s->ret >= 0 && (kind == K_RENAME || kind == K_RMDIR || kind == K_MOUNT))
		generation++;
	return report_names(s);
}

/* Calls on a descriptor. */
__noinline int on_fd(struct scratch *s)
{
	u64 f;

	if (!s)
		return 0;
	if (row(s)->name != NOARG) {
		s->hash.a = s->hash.b = seed;
		s->name = take_string(s, NAME_AT, arg(s, row(s)->name));
		s->how = mix(s->how, s->hash.a);
	}
	f = file_of(arg(s, row(s)->fd));
	if (!f) {
		s->how = mix(s->how, arg(s, row(s)->fd));
		return report_args(s);
	}
	return report_file(s, f);
}

/* A change of directory or root: where the process is now. */
__noinline int on_cwd(struct scratch *s)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct path p = {};

	if (!s)
		return 0;
	if (s->ret < 0) {
		if (row(s)->path == NOARG)
			s->how = arg(s, row(s)->fd);
		return report_names(s);
	}
	if (row(s)->kind == K_CHROOT) {
		root_of(t, &p);
		generation++; /* the same names mean other files now */
	} else
		here(t, &p);
	return report_path(s, (u64)p.mnt, (u64)p.dentry);
}

static __always_inline int is_a(u64 file, u32 type)
{
	struct file *f = (void *)file;

	return (BPF_CORE_READ(f, f_inode, i_mode) & 0170000) == type;
}

/* Bytes into regular files. */
__noinline int on_write(struct scratch *s)
{
	u64 f;

	if (!s)
		return 0;
	if (s->ret <= 0)
		return filter(s);
	f = file_of(arg(s, row(s)->fd));
	if (!f || !is_a(f, 0100000))
		return filter(s);
	s->bytes = s->ret;
	return report_file(s, f);
}

__noinline int on_mmap(struct scratch *s)
{
	u64 type, f;

	if (!s)
		return 0;
	type = s->arg[3] & 15; /* MAP_SHARED, MAP_SHARED_VALIDATE; PROT_WRITE */
	if ((type != 1 && type != 3) || !(s->arg[2] & 2) || (s->ret < 0 && s->ret > -4096))
		return filter(s);
	f = file_of(s->arg[4]);
	if (s->arg[3] & 32 || !f) /* MAP_ANONYMOUS */
		return filter(s);
	s->ret = 0;
	return report_file(s, f);
}

/* Every call but those on sockets. One program for all of them, since what they
 * share is most of what there is to verify. */
SEC("raw_tp/sys_exit")
int BPF_PROG(files, u64 entry, long ret)
{
	struct scratch *s = enter();

	if (!s)
		return 0;
	switch (row(s)->prog) {
	case P_OPEN:
		return on_open(s);
	case P_PATH:
		return on_path(s);
	case P_FD:
		return on_fd(s);
	case P_CWD:
		return on_cwd(s);
	case P_WRITE:
		return on_write(s);
	case P_MMAP:
		return on_mmap(s);
	}
	return report_args(s); /* P_ARGS: the arguments say it all */
}

#endif
