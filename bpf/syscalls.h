/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls. One program sits on sys_exit, looks the number up in the table
 * that user space filled in, tests the scope and jumps to one of a few
 * handlers. Arguments come from the registers saved on entry, which the kernel
 * keeps until exit. */
#ifndef ASSAY_SYSCALLS_H
#define ASSAY_SYSCALLS_H
#include "cache.h"
#include "path.h"
#include "process.h"

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	volatile const struct syscall *d;
	struct task_struct *t = bpf_get_current_task_btf();
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

/* How the call in s is treated. */
static __always_inline volatile const struct syscall *row(struct scratch *s)
{
	u32 nr = s->sel & (NSYS - 1);

	return s->is32 ? &syscalls32[nr] : &syscalls[nr];
}

static __always_inline u64 arg(struct scratch *s, u32 i)
{
	return i < 6 ? s->arg[i] : 0;
}

/* What every handler starts with. Counts the call and hashes the arguments
 * that tell repeats apart. */
static __always_inline struct scratch *enter(void)
{
	struct scratch *s = scratch(CTX_SYSCALL);
	struct counter *c;
	u32 keys, i;
	u64 h = 0;

	if (!s)
		return 0;
	c = cell(row(s)->hook);
	if (!c)
		return 0;
	c->fired++;
	s->bits = s->name = s->bytes = 0;
	keys = row(s)->keys;
#pragma unroll
	for (i = 0; i < 6; i++)
		h = keys & 1 << i ? mix(h, s->arg[i]) : h;
	s->how = h;
	return s;
}

static __always_inline int filter(struct scratch *s)
{
	struct counter *c = cell(row(s)->hook);

	if (c)
		c->filtered++;
	return 0;
}

static __always_inline void begin_call(struct scratch *s)
{
	begin(s, CTX_SYSCALL, row(s)->kind, row(s)->hook);
	__builtin_memcpy(s->r.arg, s->arg, sizeof(s->r.arg));
	s->r.ret = s->ret;
	s->r.nr = s->nr;
	s->r.bits = s->bits;
	if (s->is32)
		s->r.bits |= B_IA32;
}

/* Reports the call in s without any path. */
__noinline int report_args(struct scratch *s)
{
	struct counter *c;

	if (!s || !(c = cell(row(s)->hook)))
		return 0;
	key_who(s, row(s)->kind);
	s->key[2] = s->key[3] = s->key[4] = s->key[5] = 0;
	if (coalesce(s, c))
		return 0;
	begin_call(s);
	emit_keyed(s, c, 0);
	return 0;
}

#define NAME_AT 16384 /* where in the scratch's data a further string waits */

/* Reports the call in s with the kernel's own path of (mnt, dentry) and, behind
 * it, the string of length s->name at NAME_AT. */
__noinline int report_path(struct scratch *s, u64 mnt, u64 dentry)
{
	struct path p = {(void *)mnt, (void *)dentry};
	struct counter *c;
	u32 n;

	if (!s || !(c = cell(row(s)->hook)))
		return 0;
	where_is(s, &p);
	key_who(s, row(s)->kind);
	s->key[2] = s->where.dentry;
	s->key[3] = s->where.mnt;
	s->key[4] = s->where.hash;
	s->key[5] = mix(s->where.parent, s->where.ino);
	if (coalesce(s, c))
		return 0;
	begin_call(s);
	s->r.bits |= B_WALKED;
	identify(&s->r, (void *)s->where.inode);
	if (s->bytes)
		s->r.arg[5] = s->bytes;
	n = walk(s, 0, mnt, dentry);
	s->r.bits |= s->walk.bits;
	s->r.seg[S_PATH] = n;
	if (s->name) {
		s->r.seg[S_NAME] = s->name;
		bpf_probe_read_kernel(&s->data[n & (DATA - 1)], s->name & 4095, &s->data[NAME_AT]);
		n += s->name;
	}
	emit_keyed(s, c, n);
	return 0;
}

static __always_inline int report_file(struct scratch *s, u64 file)
{
	struct file *f = (void *)file;
	struct path p = {};

	bpf_core_read(&p, sizeof(p), &f->f_path);
	return report_path(s, (u64)p.mnt, (u64)p.dentry);
}

/* openat2's struct open_how replaces the arguments that follow the path, so
 * that flags, mode and resolve stand in arg[2] to arg[4]. */
static __always_inline void read_how(struct scratch *s)
{
	u64 how[3] = {};

	bpf_probe_read_user(how, sizeof(how), (void *)s->arg[2]);
	s->arg[2] = how[0];
	s->arg[3] = how[1];
	s->arg[4] = how[2];
	s->how = mix(mix(how[0], how[1]), how[2]);
}

static long hash_word(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct hash_at *h = &s->hash;
	u64 w = *(u64 *)&s->data[(h->off + i * 8) & (DATA - 1)];

	h->a = mix(h->a, w);
	h->b = mix(h->b + i, w ^ h->a);
	return 0;
}

/* Mixes n bytes at off into s->hash, after padding them with zeros to a word. */
__noinline int hash_string(struct scratch *s, u32 off, u32 n)
{
	if (!s)
		return 0;
	*(u64 *)&s->data[(off + n) & (DATA - 1)] = 0;
	s->hash.off = off;
	s->hash.a = mix(s->hash.a, n);
	bpf_loop((n + 7) / 8, hash_word, &s, 0);
	return 0;
}

/* Reads a user string to off, hashes it, and returns its length. */
__noinline u32 take_string(struct scratch *s, u32 off, u64 from)
{
	long n;

	if (!s)
		return 0;
	s->data[off & (DATA - 1)] = 0;
	if (!from)
		return 0;
	n = bpf_probe_read_user_str(&s->data[off & (DATA - 1)], 4096, (void *)from);
	if (n == 0) /* older kernels say so of an empty string, newer ones 1 */
		return 0;
	if (n < 0) {
		if (s->ret != -14) /* EFAULT: the kernel could not read it either */
			s->bits |= B_FAILED_READ;
		return 0;
	}
	hash_string(s, off, n - 1);
	return n - 1;
}

/* The directory that the name at offset name is relative to. */
static __always_inline int base_of(struct scratch *s, u32 name, u32 dfd_index, struct path *p)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct file *f;
	s32 dfd;

	if (s->data[name & (DATA - 1)] == '/')
		return root_of(t, p);
	if (dfd_index == NOARG || (dfd = (s32)arg(s, dfd_index)) == -100 /* AT_FDCWD */)
		return here(t, p);
	f = (void *)file_of(dfd);
	if (!f)
		return -1;
	return bpf_core_read(p, sizeof(*p), &f->f_path);
}

#define NAME2_AT 8192

/* Reports the call in s with the names in the caller's memory. */
__noinline int report_names(struct scratch *s)
{
	struct path base = {}, base2 = {};
	struct counter *c;
	u32 end, next, n = 0, n2 = 0;

	if (!s || !(c = cell(row(s)->hook)))
		return 0;
	s->hash.a = seed;
	s->hash.b = s->how;
	if (row(s)->path != NOARG) {
		n = take_string(s, 0, arg(s, row(s)->path));
		base_of(s, 0, row(s)->dfd, &base);
	}
	if (row(s)->path2 != NOARG) {
		n2 = take_string(s, NAME2_AT, arg(s, row(s)->path2));
		base_of(s, NAME2_AT, row(s)->dfd2, &base2);
	}
	if (row(s)->name != NOARG)
		s->name = take_string(s, NAME_AT, arg(s, row(s)->name));

	key_who(s, row(s)->kind);
	s->key[2] = s->hash.a;
	s->key[3] = s->hash.b;
	s->key[4] = mix((u64)base.dentry, (u64)base.mnt);
	s->key[5] = mix((u64)base2.dentry, (u64)base2.mnt);
	if (coalesce(s, c))
		return 0;
	begin_call(s);
	s->r.seg[S_PATH] = end = n;
	if (base.dentry) {
		next = walk_base(s, end, &base);
		s->r.seg[S_BASE] = next - end;
		end = next;
	} else if (row(s)->path != NOARG) {
		s->r.bits |= B_NO_BASE;
	}
	if (n2) {
		s->r.seg[S_PATH2] = n2;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n2 & 4095, &s->data[NAME2_AT]);
		end += n2;
	}
	if (base2.dentry) {
		next = walk_base(s, end, &base2);
		s->r.seg[S_BASE2] = next - end;
		end = next;
	} else if (row(s)->path2 != NOARG) {
		s->r.bits |= B_NO_BASE;
	}
	n = s->name;
	if (n) {
		s->r.seg[S_NAME] = n;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n & 4095, &s->data[NAME_AT]);
		end += n;
	}
	emit_keyed(s, c, end);
	return 0;
}

#define OPENAT2 437

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
	if (row(s)->kind == K_CHROOT)
		root_of(t, &p);
	else
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
SEC("tp_btf/sys_exit")
int BPF_PROG(files, struct pt_regs *regs, long ret)
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
