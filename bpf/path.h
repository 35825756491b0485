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

		if (up == m || !up)
			return 1;
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
 * offset behind it. What went wrong is in *bits. */
static __noinline u32 walk(struct scratch *s, u32 off, u64 mnt, u64 dentry, u32 *bits)
{
	struct walk *w = &s->walk;
	struct vfsmount *v = (void *)mnt;
	struct dentry *d = (void *)dentry;

	if (!v || !d) {
		*bits |= B_FAILED_READ;
		return off;
	}
	w->off = w->start = off;
	w->names = w->bits = 0;
	w->dentry = d;
	w->mnt = (void *)v - bpf_core_field_offset(struct mount, mnt);
	w->root = BPF_CORE_READ(v, mnt_root);
	if (bpf_loop(MAX_COMPONENTS + 64, step, &s, 0) > MAX_COMPONENTS + 63)
		w->bits |= B_TRUNCATED;
	if (d != BPF_CORE_READ(d, d_parent) && !BPF_CORE_READ(d, d_hash.pprev))
		w->bits |= B_DELETED;
	*bits |= w->bits;
	return w->off;
}

/* The open file of a descriptor of the current task. */
static __always_inline struct file *file_of(u32 fd)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file **table, *f = 0;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	table = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&f, sizeof(f), table + fd);
	return f;
}

/* Identifies a file for the key: where it hangs and what it is. */
struct where {
	u64 mnt, dentry;
	u64 hash, parent, ino;
	struct inode *inode;
};

static __always_inline int where_is(struct path *p, struct where *w)
{
	struct path here = {};
	struct inode *inode;
	struct dentry *d;

	if (bpf_core_read(&here, sizeof(here), p))
		return -1;
	d = here.dentry;
	w->mnt = (u64)here.mnt;
	w->dentry = (u64)d;
	w->hash = BPF_CORE_READ(d, d_name.hash_len);
	w->parent = (u64)BPF_CORE_READ(d, d_parent);
	inode = BPF_CORE_READ(d, d_inode);
	w->inode = inode;
	w->ino = BPF_CORE_READ(inode, i_ino);
	return 0;
}

static __always_inline void identify(struct record *r, struct inode *inode)
{
	r->ino = BPF_CORE_READ(inode, i_ino);
	r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	r->mode = BPF_CORE_READ(inode, i_mode);
}

#endif
