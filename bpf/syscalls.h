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
	bpf_tail_call(ctx, &progs, prog);
	return 0;
}

/* What every handler starts with. */
struct call {
	struct scratch *s;
	volatile const struct syscall *d;
	struct counter *c;
};

static __always_inline int enter(struct call *k)
{
	struct scratch *s = scratch(CTX_SYSCALL);
	u32 nr;

	if (!s)
		return -1;
	nr = s->sel & (NSYS - 1);
	k->s = s;
	k->d = s->is32 ? &syscalls32[nr] : &syscalls[nr];
	k->c = cell(k->d->hook);
	if (!k->c)
		return -1;
	k->c->fired++;
	return 0;
}

static __always_inline u64 arg(struct scratch *s, u32 i)
{
	return i < 6 ? s->arg[i] : 0;
}

/* Hashes the arguments that tell repeats apart. */
static __always_inline u64 detail(struct scratch *s, u32 keys)
{
	u64 h = 0;
	u32 i;

#pragma unroll
	for (i = 0; i < 6; i++)
		if (keys & 1 << i)
			h = mix(h, s->arg[i]);
	return h;
}

static __always_inline void begin_call(struct call *k)
{
	struct scratch *s = k->s;

	begin(s, CTX_SYSCALL, k->d->kind, k->d->hook);
	__builtin_memcpy(s->r.arg, s->arg, sizeof(s->r.arg));
	s->r.ret = s->ret;
	s->r.nr = s->nr;
	if (s->is32)
		s->r.bits |= B_IA32;
}

#define NAME_AT 16384 /* where in the scratch's data a further string waits */

/* Reports the call with the kernel's own path of p and, behind it, the string
 * of that length at NAME_AT. */
static __always_inline int report_path(struct call *k, struct path *p, u64 how, u64 bytes, u16 name)
{
	struct scratch *s = k->s;
	struct where w = {};
	u32 n;

	if (where_is(p, &w)) {
		begin_call(k);
		s->r.bits |= B_FAILED_READ;
		emit(s, k->c, 0);
		return 0;
	}
	key_who(s, k->d->kind, how);
	s->key[2] = w.dentry;
	s->key[3] = w.mnt;
	s->key[4] = w.hash;
	s->key[5] = mix(w.parent, w.ino);
	if (coalesce(s, k->c, bytes))
		return 0;
	begin_call(k);
	s->r.bits |= B_WALKED;
	identify(&s->r, w.inode);
	if (bytes)
		s->r.arg[5] = bytes;
	n = s->r.seg[S_PATH] = walk(s, 0, w.mnt, w.dentry, &s->r.bits);
	if (name) {
		s->r.seg[S_NAME] = name;
		bpf_probe_read_kernel(&s->data[n & (DATA - 1)], name & 4095, &s->data[NAME_AT]);
		n += name;
	}
	emit_keyed(s, k->c, n);
	return 0;
}

/* Reports the call without any path. */
static __always_inline int report_args(struct call *k, u64 how)
{
	struct scratch *s = k->s;

	key_who(s, k->d->kind, how);
	s->key[2] = s->key[3] = s->key[4] = s->key[5] = 0;
	if (coalesce(s, k->c, 0))
		return 0;
	begin_call(k);
	emit_keyed(s, k->c, 0);
	return 0;
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

/* Reads a user string to off, pads it with zeros to a word and hashes it. */
static __noinline u32 take_string(struct scratch *s, u32 off, u32 seg, u64 from)
{
	long n;

	s->r.seg[seg & (S_COUNT - 1)] = 0;
	s->data[off & (DATA - 1)] = 0;
	if (!from)
		return off;
	n = bpf_probe_read_user_str(&s->data[off & (DATA - 1)], 4096, (void *)from);
	if (n <= 0) {
		if (s->ret != -14) /* EFAULT: the kernel could not read it either */
			s->bits |= B_FAILED_READ;
		return off;
	}
	s->r.seg[seg & (S_COUNT - 1)] = n - 1;
	*(u64 *)&s->data[(off + n) & (DATA - 1)] = 0;
	s->hash.off = off;
	s->hash.a = mix(s->hash.a, n);
	bpf_loop((n + 7) / 8, hash_word, &s, 0);
	return off + n - 1;
}

/* The directory that an unresolved name is relative to. */
static __always_inline int base_of(struct scratch *s, u32 path, u32 dfd_index, struct path *p)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct file *f;
	s32 dfd;

	if (s->data[path & (DATA - 1)] == '/')
		return bpf_core_read(p, sizeof(*p), &t->fs->root);
	if (dfd_index == NOARG || (dfd = (s32)arg(s, dfd_index)) == -100 /* AT_FDCWD */)
		return bpf_core_read(p, sizeof(*p), &t->fs->pwd);
	f = file_of(dfd);
	if (!f)
		return -1;
	return bpf_core_read(p, sizeof(*p), &f->f_path);
}

/* Reports the call with the names in the caller's memory. */
static __always_inline int report_names(struct call *k, u64 how)
{
	struct scratch *s = k->s;
	struct hash_at *h = &s->hash;
	struct path base = {}, base2 = {};
	u32 end, next, two, bits = 0;
	u16 n0, n2, n4;

	h->a = seed;
	h->b = how;
	s->bits = 0;
	s->r.seg[S_PATH2] = s->r.seg[S_NAME] = 0;
	s->r.seg[S_PATH] = 0;
	end = 0;
	if (k->d->path != NOARG) {
		end = take_string(s, 0, S_PATH, arg(s, k->d->path));
		base_of(s, 0, k->d->dfd, &base);
		h->a = mix(h->a, (u64)base.dentry);
		h->b = mix(h->b, (u64)base.mnt);
	}
	/* Strings are 8-aligned for the hash and moved together below. */
	two = 8192;
	if (k->d->path2 != NOARG) {
		take_string(s, two, S_PATH2, arg(s, k->d->path2));
		base_of(s, two, k->d->dfd2, &base2);
		h->a = mix(h->a, (u64)base2.dentry);
		h->b = mix(h->b, (u64)base2.mnt);
	}
	if (k->d->name != NOARG)
		take_string(s, NAME_AT, S_NAME, arg(s, k->d->name));
	n0 = s->r.seg[S_PATH];
	n2 = s->r.seg[S_PATH2];
	n4 = s->r.seg[S_NAME];
	bits = s->bits;

	key_who(s, k->d->kind, how);
	s->key[2] = h->a;
	s->key[3] = h->b;
	s->key[4] = (u64)base.dentry;
	s->key[5] = (u64)base2.dentry;
	if (coalesce(s, k->c, 0))
		return 0;
	begin_call(k);
	s->r.bits |= bits;
	s->r.seg[S_PATH] = n0;

	bits = 0;
	if (base.dentry) {
		next = walk(s, end, (u64)base.mnt, (u64)base.dentry, &bits);
		s->r.seg[S_BASE] = next - end;
		end = next;
	} else if (k->d->path != NOARG) {
		s->r.bits |= B_NO_BASE;
	}
	if (n2) {
		s->r.seg[S_PATH2] = n2;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n2 & 4095, &s->data[two]);
		end += n2;
	}
	if (base2.dentry) {
		next = walk(s, end, (u64)base2.mnt, (u64)base2.dentry, &bits);
		s->r.seg[S_BASE2] = next - end;
		end = next;
	} else if (k->d->path2 != NOARG) {
		s->r.bits |= B_NO_BASE;
	}
	if (n4) {
		s->r.seg[S_NAME] = n4;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n4 & 4095, &s->data[NAME_AT]);
		end += n4;
	}
	if (bits & (B_DELETED | B_UNREACHABLE))
		s->r.bits |= B_BASE_UNREACHABLE;
	s->r.bits |= bits & (B_TRUNCATED | B_FAILED_READ);
	emit_keyed(s, k->c, end);
	return 0;
}

#define OPENAT2 437

SEC("tp_btf/sys_exit")
int BPF_PROG(on_open, struct pt_regs *regs, long ret)
{
	struct call k;
	struct file *f;

	if (enter(&k))
		return 0;
	if (k.s->nr == OPENAT2)
		read_how(k.s);
	if (k.s->ret < 0)
		return report_names(&k, detail(k.s, k.d->keys));
	f = file_of(k.s->ret);
	if (!f) /* closed by another thread before we looked */
		return report_names(&k, detail(k.s, k.d->keys));
	return report_path(&k, &f->f_path, detail(k.s, k.d->keys), 0, 0);
}

/* Calls that take names. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_path, struct pt_regs *regs, long ret)
{
	struct call k;

	if (enter(&k))
		return 0;
	if (k.d->kind == K_EXEC_FAILED && k.s->ret >= 0) {
		k.c->filtered++; /* sched_process_exec has it */
		return 0;
	}
	if (k.s->ret >= 0 && (k.d->kind == K_RENAME || k.d->kind == K_RMDIR || k.d->kind == K_UNLINK || k.d->kind == K_MOUNT))
		generation++;
	return report_names(&k, detail(k.s, k.d->keys));
}

/* Calls on a descriptor. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_fd, struct pt_regs *regs, long ret)
{
	struct call k;
	struct file *f;
	u16 name = 0;
	u64 how;

	if (enter(&k))
		return 0;
	how = detail(k.s, k.d->keys);
	if (k.d->name != NOARG) {
		k.s->hash.a = seed;
		take_string(k.s, NAME_AT, S_NAME, arg(k.s, k.d->name));
		name = k.s->r.seg[S_NAME];
		how = mix(how, k.s->hash.a);
	}
	f = file_of(arg(k.s, k.d->fd));
	if (!f)
		return report_args(&k, mix(how, arg(k.s, k.d->fd)));
	return report_path(&k, &f->f_path, how, 0, name);
}

/* A change of directory or root: where the process is now. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_cwd, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct call k;

	if (enter(&k))
		return 0;
	if (k.s->ret < 0)
		return report_names(&k, k.d->path == NOARG ? arg(k.s, k.d->fd) : 0);
	if (k.d->kind == K_CHROOT)
		return report_path(&k, &t->fs->root, 0, 0, 0);
	return report_path(&k, &t->fs->pwd, 0, 0, 0);
}

static __always_inline int is_regular(struct file *f)
{
	return (BPF_CORE_READ(f, f_inode, i_mode) & 0170000) == 0100000;
}

/* Bytes into regular files. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_write, struct pt_regs *regs, long ret)
{
	struct call k;
	struct file *f;

	if (enter(&k))
		return 0;
	if (k.s->ret <= 0)
		goto filtered;
	f = file_of(arg(k.s, k.d->fd));
	if (!f || !is_regular(f))
		goto filtered;
	return report_path(&k, &f->f_path, 0, k.s->ret, 0);
filtered:
	k.c->filtered++;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_mmap, struct pt_regs *regs, long ret)
{
	struct call k;
	struct file *f;
	u64 type;

	if (enter(&k))
		return 0;
	type = k.s->arg[3] & 15;
	if ((type != 1 && type != 3) || !(k.s->arg[2] & 2) || (k.s->ret < 0 && k.s->ret > -4096))
		goto filtered; /* MAP_SHARED, MAP_SHARED_VALIDATE; PROT_WRITE */
	f = file_of(k.s->arg[4]);
	if (k.s->arg[3] & 32 || !f) /* MAP_ANONYMOUS */
		goto filtered;
	k.s->ret = 0;
	return report_path(&k, &f->f_path, detail(k.s, k.d->keys), 0, 0);
filtered:
	k.c->filtered++;
	return 0;
}

/* Calls whose arguments say it all. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_args, struct pt_regs *regs, long ret)
{
	struct call k;

	if (enter(&k))
		return 0;
	return report_args(&k, detail(k.s, k.d->keys));
}

#endif
