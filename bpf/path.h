/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Paths from kernel objects. bpf_d_path cannot be called here, so the walk
 * from a dentry to the root of its mount tree is our own. It writes the names
 * leaf first, each followed by '/': user space turns them around. */
#ifndef ASSAY_PATH_H
#define ASSAY_PATH_H
#include "state.h"

#define MAX_COMPONENTS 256
#define MAX_PATH 4096

static long step(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct walk *w = &s->walk;
	/* In locals: an expression inside BPF_CORE_READ is relocated as a whole. */
	struct dentry *d = w->dentry, *parent;
	struct mount *m = w->mnt;
	struct qstr name;
	u32 n, off;

	if (d == w->root) {
		struct mount *up = BPF_CORE_READ(m, mnt_parent);

		if (up == m || !up) {
			if (!BPF_CORE_READ(m, mnt_ns)) /* unmounted, but still in use */
				w->bits |= B_UNREACHABLE;
			return 1;
		}
		w->dentry = BPF_CORE_READ(m, mnt_mountpoint);
		w->mnt = up;
		w->root = BPF_CORE_READ(up, mnt.mnt_root);
		return 0;
	}
	parent = BPF_CORE_READ(d, d_parent);
	if (bpf_core_read(&name, sizeof(name), &d->d_name) || !parent) {
		w->bits |= B_FAILED_READ;
		return 1;
	}
	n = name.len & 0xff;
	if (w->names >= MAX_COMPONENTS || w->off - w->start + n >= MAX_PATH) {
		w->bits |= B_TRUNCATED;
		return 1;
	}
	off = w->off;
	if (bpf_probe_read_kernel(&s->data[off & (DATA - 1)], n, name.name)) {
		w->bits |= B_FAILED_READ;
		return 1;
	}
	off += n;
	s->data[off & (DATA - 1)] = '/';
	w->off = off + 1;
	w->names++;
	if (parent == d) {
		/* The top of a tree that is mounted nowhere in reach. */
		w->bits |= B_UNREACHABLE;
		return 1;
	}
	w->dentry = parent;
	return 0;
}

/* Appends the path of (mnt, dentry) at offset off of s->data and returns the
 * offset behind it. What went wrong is in s->walk.bits. */
__noinline u32 walk(struct scratch *s, u32 off, u64 mnt, u64 dentry)
{
	struct vfsmount *v = (void *)mnt;
	struct dentry *d = (void *)dentry;
	struct walk *w;

	if (!s)
		return 0;
	w = &s->walk;
	w->off = w->start = off;
	w->names = w->bits = 0;
	if (!v || !d) {
		w->bits = B_FAILED_READ;
		return off;
	}
	w->dentry = d;
	w->mnt = (void *)v - bpf_core_field_offset(struct mount, mnt);
	w->root = BPF_CORE_READ(v, mnt_root);
	if (bpf_loop(MAX_COMPONENTS + 64, step, &s, 0) > MAX_COMPONENTS + 63)
		w->bits |= B_TRUNCATED;
	if (d != BPF_CORE_READ(d, d_parent) && !BPF_CORE_READ(d, d_hash.pprev))
		w->bits |= B_DELETED;
	return w->off;
}

/* The same for a directory that a name is relative to. */
static __always_inline u32 walk_base(struct scratch *s, u32 off, struct path *p)
{
	u32 end = walk(s, off, (u64)p->mnt, (u64)p->dentry);

	s->r.bits |= s->walk.bits & B_FAILED_READ;
	if (s->walk.bits & B_TRUNCATED)
		s->r.bits |= B_BASE_CUT;
	if (s->walk.bits & (B_DELETED | B_UNREACHABLE))
		s->r.bits |= B_BASE_UNREACHABLE;
	return end;
}

static __always_inline int here(struct task_struct *t, struct path *p)
{
	struct fs_struct *fs = BPF_CORE_READ(t, fs);

	return bpf_core_read(p, sizeof(*p), &fs->pwd);
}

static __always_inline int root_of(struct task_struct *t, struct path *p)
{
	struct fs_struct *fs = BPF_CORE_READ(t, fs);

	return bpf_core_read(p, sizeof(*p), &fs->root);
}

/* Whether the task's root is another than its mount namespace's, whose mount is
 * on the one that the kernel began with, or its own parent. */
static __always_inline int has_own_root(struct task_struct *t, struct path *root)
{
	struct mount *m, *up;
	struct vfsmount *v;

	if (root_of(t, root) || !root->mnt)
		return 0;
	v = root->mnt;
	if (root->dentry != BPF_CORE_READ(v, mnt_root))
		return 1;
	m = (void *)v - bpf_core_field_offset(struct mount, mnt);
	up = BPF_CORE_READ(m, mnt_parent);
	if (up == m)
		return 0;
	return BPF_CORE_READ(m, mnt_mountpoint) != BPF_CORE_READ(up, mnt.mnt_root) || BPF_CORE_READ(up, mnt_parent) != up;
}

/* The open file of a descriptor of the current task, as an address. */
__noinline u64 file_of(u32 fd)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file **table;
	u64 f = 0;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	table = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&f, sizeof(f), table + fd);
	return f;
}

static __always_inline void where_is(struct scratch *s, struct path *p)
{
	struct dentry *d = p->dentry;
	struct where *w = &s->where;
	struct inode *inode;

	w->mnt = (u64)p->mnt;
	w->dentry = (u64)d;
	w->hash = BPF_CORE_READ(d, d_name.hash_len);
	if (!BPF_CORE_READ(d, d_hash.pprev)) /* deleted */
		w->hash = ~w->hash;
	w->parent = (u64)BPF_CORE_READ(d, d_parent);
	inode = BPF_CORE_READ(d, d_inode);
	w->inode = (u64)inode;
	w->ino = BPF_CORE_READ(inode, i_ino);
}

static __always_inline void identify(struct record *r, struct inode *inode)
{
	r->ino = BPF_CORE_READ(inode, i_ino);
	r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	r->mode = BPF_CORE_READ(inode, i_mode);
}

#endif
