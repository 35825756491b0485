/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a system call becomes a record: with the kernel's own path, with the
 * names in the caller's memory, or with its arguments alone. */
#ifndef ASSAY_REPORT_H
#define ASSAY_REPORT_H
#include "cache.h"
#include "path.h"

#define OPENAT2 437

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

/* What comes before every handler. Counts the call and hashes the arguments
 * that tell repeats apart. */
static __always_inline int enter(struct scratch *s)
{
	struct counter *c = cell(row(s)->hook);
	u32 keys, i, flags = row(s)->flags, mode = row(s)->mode;
	u64 h = 0;

	if (!c)
		return -1;
	c->fired++;
	s->bits = s->name = s->bytes = 0;
	/* The upper halves of ints are whatever the register held, and so is all of
	 * a mode where nothing is made. */
	if (mode < 6)
		s->arg[mode] = (u32)s->arg[mode];
	if (row(s)->prog == P_OPEN && flags < 6) {
		s->arg[flags] = (u32)s->arg[flags];
		if (mode < 6 && s->nr != OPENAT2 && !(s->arg[flags] & (0100 | 020000000 /* O_CREAT, __O_TMPFILE */)))
			s->arg[mode] = 0;
	}
	keys = row(s)->keys;
#pragma unroll
	for (i = 0; i < 6; i++)
		h = keys & 1 << i ? mix(h, s->arg[i]) : h;
	s->how = h;
	return 0;
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

/* Reports the call in s with the kernel's own path of (mnt, dentry) and, behind
 * it, the string of length s->name at NAME_AT. */
__noinline int report_path(struct scratch *s, u64 mnt, u64 dentry)
{
	struct counter *c;
	u64 inode;
	u32 n;

	if (!s || !(c = cell(row(s)->hook)))
		return 0;
	key_who(s, row(s)->kind);
	inode = key_file(s, mnt, dentry);
	if (coalesce(s, c))
		return 0;
	begin_call(s);
	s->r.bits |= B_WALKED;
	identify(&s->r, (void *)inode);
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

#define RESOLVE_IN_ROOT 16

/* The directory that a name is relative to. */
static __always_inline int dir_of(s32 dfd, struct path *p)
{
	struct file *f;

	if (dfd == -100 /* AT_FDCWD */)
		return here(bpf_get_current_task_btf(), p);
	f = (void *)file_of(dfd);
	if (!f)
		return -1;
	return bpf_core_read(p, sizeof(*p), &f->f_path);
}

/* Whether the name at off is /proc/self/fd/N/NAME, below a descriptor of the
 * caller's own, which would tell nobody else where: N and, 32 bits up, where NAME
 * begins, or 0. */
__noinline u64 below_fd(struct scratch *s, u32 off)
{
	const u32 first = 14, digits = 8;
	u32 fd = 0, i;
	u64 *w;

	if (!s)
		return 0;
	w = (u64 *)&s->data[off & (DATA - 1)];
	if (w[0] != *(u64 *)"/proc/se" || (w[1] ^ *(u64 *)"lf/fd/\0\0") << 16)
		return 0;
#pragma clang loop unroll(disable)
	for (i = first; i < first + digits; i++) {
		u8 c = s->data[(off + i) & (DATA - 1)];

		if (c == '/' && i > first)
			return s->data[(off + i + 1) & (DATA - 1)] == '/' ? 0 : (u64)(i + 1) << 32 | fd;
		if (c < '0' || c > '9')
			return 0;
		fd = fd * 10 + c - '0';
	}
	return 0;
}

/* The directory that the name of n bytes at offset at is relative to. Returns
 * how long the name is that is relative to it. */
static __always_inline u32 base_of(struct scratch *s, u32 at, u32 n, u32 dfd_index, struct path *p)
{
	s32 dfd = dfd_index == NOARG ? -100 : (s32)arg(s, dfd_index);
	u32 skip = 0;

	if (s->data[at] == '/' && !(s->nr == OPENAT2 && s->arg[4] & RESOLVE_IN_ROOT)) {
		u64 below = below_fd(s, at);

		skip = below >> 32;
		dfd = (u32)below;
		if (!skip || n <= skip) {
			root_of(bpf_get_current_task_btf(), p);
			return n;
		}
	}
	dir_of(dfd, p);
	if (skip && p->dentry) {
		n = (n - skip) & 4095;
		bpf_probe_read_kernel(&s->data[at], n, &s->data[at + skip]);
	}
	return n;
}

/* Reports the call in s with the names in the caller's memory. */
__noinline int report_names(struct scratch *s)
{
	struct path base = {}, base2 = {};
	struct counter *c;
	u32 end, next, relative, n = 0, n2 = 0;

	if (!s || !(c = cell(row(s)->hook)))
		return 0;
	s->hash.a = seed;
	s->hash.b = s->how;
	if (row(s)->path != NOARG) {
		n = take_string(s, IN_AT, arg(s, row(s)->path));
		n = base_of(s, IN_AT, n, row(s)->dfd, &base);
	}
	if (row(s)->path2 != NOARG) {
		n2 = take_string(s, IN2_AT, arg(s, row(s)->path2));
		n2 = base_of(s, IN2_AT, n2, row(s)->dfd2, &base2);
	}
	if (row(s)->name != NOARG)
		s->name = take_string(s, NAME_AT, arg(s, row(s)->name));
	relative = (n && s->data[IN_AT] != '/') || (n2 && s->data[IN2_AT] != '/');

	key_who(s, row(s)->kind);
	s->key[2] = s->hash.a;
	s->key[3] = s->hash.b;
	s->key[4] = place(&base);
	s->key[5] = place(&base2);
	if (coalesce(s, c))
		return 0;
	begin_call(s);
	s->r.seg[S_PATH] = end = n;
	bpf_probe_read_kernel(s->data, n & 4095, &s->data[IN_AT]);
	if (base.dentry) {
		next = walk_base(s, end, &base);
		s->r.seg[S_BASE] = next - end;
		end = next;
	} else if (row(s)->path != NOARG) {
		s->r.bits |= B_NO_BASE;
	}
	if (n2) {
		s->r.seg[S_PATH2] = n2;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n2 & 4095, &s->data[IN2_AT]);
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
	if (relative && has_own_root(bpf_get_current_task_btf(), &base)) {
		next = walk_base(s, end, &base); /* where ".." ends */
		s->r.seg[S_ENV] = next - end;
		end = next;
	}
	emit_keyed(s, c, end);
	return 0;
}

#endif
