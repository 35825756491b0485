/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Paths from kernel objects. bpf_d_path cannot be called here, so the walk
 * from a dentry to the root of its mount tree is our own. It writes the names
 * leaf first, each followed by '/': user space turns them around. */
#ifndef ASSAY_PATH_H
#define ASSAY_PATH_H
#include "state.h"

#define MAX_COMPONENTS 256
#define MAX_PATH 4096
#define SHORT_NAME 40 /* DNAME_INLINE_LEN */

/* To look at eight bytes at once. FIRST is how many are before the first that
 * HAS_ZERO found. */
#define REPEAT(c) (0x0101010101010101ULL * (c))
#define HAS_ZERO(w) (((w) - REPEAT(1)) & ~(w) & REPEAT(0x80))
#define BEFORE(zero) ((((zero) - 1) & ~(zero)) >> 7)
#define FIRST(zero) ((BEFORE(zero) & REPEAT(1)) * REPEAT(1) >> 56)

#define BYTES(n) ((1ULL << (n) * 8) - 1)

/* name_words has at 32 what the first n bytes of a word are, for each n, from 0 bytes
 * before it and from all behind. A table, as the verifier goes each way of a choice. */
const u64 name_words[128] = {
	[33] = BYTES(1), [34] = BYTES(2), [35] = BYTES(3), [36] = BYTES(4), [37] = BYTES(5), [38] = BYTES(6),
		[39] = BYTES(7),
	[40 ... 127] = ~0ULL,
};

/* What of the word at i belongs to a name of n bytes, of up to SHORT_NAME. */
static __always_inline u64 name_mask(u32 n, u32 i)
{
	return name_words[(n + 32 - i * 8) & 127];
}

/* Where words cannot be read, reads all that is wanted of a dentry at once. */
static __always_inline int behead(struct walk *w, u64 dentry)
{
	return HAS_WORDS ? 0 : bpf_probe_read_kernel(w->head, HEAD, (void *)dentry);
}

/* A field of the struct at ptr, of whose first bytes buf has a copy. Each read of the
 * kernel's memory with a helper takes 15 to 30 ns, however small. Which way is known at
 * load time. */
#define COPIED(buf, ptr, T, field)                                                           \
	({                                                                                   \
		u32 __at = bpf_core_field_offset(T, field);                                  \
		typeof(((T *)0)->field) __word = {};                                         \
		if (__at <= sizeof(buf) - sizeof(__word))                                    \
			__word = *(typeof(__word) *)((u8 *)(buf) + __at);                    \
		else                                                                         \
			bpf_core_read(&__word, sizeof(__word), &(ptr)->field);               \
		__word;                                                                      \
	})

/* The same where buf has a copy only if the kernel has no bpf_rdonly_cast. */
#define FIELD_OR_COPIED(buf, ptr, T, field) (HAS_WORDS ? FIELD(ptr, T, field) : COPIED(buf, ptr, T, field))

/* The same of the dentry that behead has read, as a word. */
#define HEAD_WORD(w, d, field) (u64)FIELD_OR_COPIED((w)->head, d, struct dentry, field)

/* Whether the words of a dentry's name of n bytes have been read. */
static __always_inline int is_short(u32 n, u64 name, u64 dentry)
{
	return n <= SHORT_NAME && (HAS_WORDS || name - dentry <= HEAD - SHORT_NAME);
}

/* The i-th of them. */
static __always_inline u64 name_word(struct walk *w, u64 name, u64 dentry, u32 i)
{
	return HAS_WORDS ? word_at(name + i * 8) : get8((u8 *)w->head + ((name - dentry) & (HEAD - SHORT_NAME)) + i * 8);
}

/* Copies a dentry's name of n bytes to dst, which has room for more. */
static __always_inline int copy_name(struct walk *w, u8 *dst, u32 n, u64 name, u64 dentry)
{
	u32 i;

	if (!is_short(n, name, dentry))
		return bpf_probe_read_kernel(dst, n, (void *)name);
	put8(dst, name_word(w, name, dentry, 0));
	if (n <= 8) /* most are */
		return 0;
#pragma unroll
	for (i = 1; i < SHORT_NAME / 8; i++)
		put8(dst + i * 8, name_word(w, name, dentry, i));
	return 0;
}

static __always_inline void enter_mount(struct walk *w, struct mount *m)
{
	u32 at = bpf_core_field_offset(struct mount, mnt_parent);

	w->mnt = m;
	if (!HAS_WORDS && bpf_core_field_offset(struct mount, mnt_mountpoint) == at + 8 &&
		bpf_core_field_offset(struct mount, mnt.mnt_root) == at + 16) {
		bpf_probe_read_kernel(&w->tree, sizeof(w->tree), (void *)m + at);
	} else {
		w->tree.parent = FIELD(m, struct mount, mnt_parent);
		w->tree.mountpoint = FIELD(m, struct mount, mnt_mountpoint);
		w->tree.root = FIELD(m, struct mount, mnt.mnt_root);
	}
}

static long step(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct walk *w = &s->walk;
	/* In locals: an expression inside BPF_CORE_READ is relocated as a whole. */
	struct dentry *d = w->dentry, *parent;
	u32 n, off;

	if (d == w->tree.root) {
		struct mount *m = w->mnt, *up = w->tree.parent;

		if (up == m || !up) {
			if (FIELD(m, struct mount, mnt_ns) != w->ns) /* another's, or of a tree that is mounted nowhere */
				w->bits |= B_UNREACHABLE;
			return 1;
		}
		d = w->dentry = w->tree.mountpoint;
		enter_mount(w, up);
		w->have = 0;
		if (d == w->tree.root)
			return 0;
	}
	if (!w->have && behead(w, (u64)d)) {
		w->bits |= B_FAILED_READ;
		return 1;
	}
	w->have = 0;
	parent = (void *)HEAD_WORD(w, d, d_parent);
	if (HAS_WORDS && !parent) { /* every dentry has one: this could not be read */
		w->bits |= B_FAILED_READ;
		return 1;
	}
	n = HEAD_WORD(w, d, d_name.hash_len) >> 32 & 0xff;
	if (w->names >= MAX_COMPONENTS || w->off - w->start + n >= MAX_PATH) {
		w->bits |= B_TRUNCATED;
		return 1;
	}
	off = w->off;
	if (copy_name(w, &s->data[off & (DATA - 1)], n, HEAD_WORD(w, d, d_name.name), (u64)d)) {
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

/* As walk, where key_file has just looked at the dentry. */
__noinline u32 walk_known(struct scratch *s, u32 off, u64 mnt, u64 dentry)
{
	struct vfsmount *v = (void *)mnt;
	u32 deleted;
	struct dentry *d = (void *)dentry;
	struct walk *w;

	if (!s)
		return 0;
	w = &s->walk;
	w->off = w->start = off;
	w->names = w->bits = 0;
	w->ns = FIELD(FIELD(bpf_get_current_task_btf(), struct task_struct, nsproxy), struct nsproxy, mnt_ns);
	if (!v || !d || (!w->have && behead(w, dentry))) {
		w->bits = B_FAILED_READ;
		return off;
	}
	w->have = 1;
	deleted = (u64)d != HEAD_WORD(w, d, d_parent) && !HEAD_WORD(w, d, d_hash.pprev) &&
		!BPF_CORE_READ(d, d_inode, i_nlink);
	w->dentry = d;
	enter_mount(w, (void *)v - bpf_core_field_offset(struct mount, mnt));
	if (bpf_loop(MAX_COMPONENTS + 64, step, &s, 0) > MAX_COMPONENTS + 63)
		w->bits |= B_TRUNCATED;
	if (deleted)
		w->bits |= B_DELETED;
	return w->off;
}

/* Appends the path of (mnt, dentry) at offset off of s->data and returns the
 * offset behind it. What went wrong is in s->walk.bits. */
static __always_inline u32 walk(struct scratch *s, u32 off, u64 mnt, u64 dentry)
{
	s->walk.have = 0;
	return walk_known(s, off, mnt, dentry);
}

/* Appends the dentry's names in its own file system, wherever that is mounted. */
__noinline u32 walk_inside(struct scratch *s, u32 off, u64 dentry)
{
	struct walk *w;

	if (!s)
		return 0;
	w = &s->walk;
	w->off = w->start = off;
	w->names = w->bits = w->have = 0;
	w->dentry = (void *)dentry;
	w->tree.root = 0; /* no mount's */
	bpf_loop(MAX_COMPONENTS, step, &s, 0);
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

/* Reads the struct path that is there. */
static __always_inline int path_at(u64 at, struct path *p)
{
	if (!HAS_WORDS)
		return bpf_core_read(p, sizeof(*p), (struct path *)at);
	p->mnt = FIELD(at, struct path, mnt);
	p->dentry = FIELD(at, struct path, dentry);
	return 0;
}

static __always_inline int here(struct task_struct *t, struct path *p)
{
	return path_at((u64)FIELD(t, struct task_struct, fs) + bpf_core_field_offset(struct fs_struct, pwd), p);
}

static __always_inline int root_of(struct task_struct *t, struct path *p)
{
	return path_at((u64)FIELD(t, struct task_struct, fs) + bpf_core_field_offset(struct fs_struct, root), p);
}

/* The open file of a descriptor of the current task, as an address. */
static __always_inline u64 file_at(u32 fd)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct fdtable *fdt;

	if (HAS_WORDS) {
		fdt = FIELD(FIELD(t, struct task_struct, files), struct files_struct, fdt);
		return fd < FIELD(fdt, struct fdtable, max_fds) ? word_at((u64)(FIELD(fdt, struct fdtable, fd) + fd)) : 0;
	}
	fdt = t->files->fdt;
	return fd < fdt->max_fds ? word_at((u64)(fdt->fd + fd)) : 0;
}

/* The same where the program has room on the stack for a call. */
__noinline u64 file_of(u32 fd)
{
	return file_at(fd);
}

static long hash_word(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct hash_at *h = &s->hash;
	u64 w = get8(&s->data[(h->off + i * 8) & (DATA - 1)]);

	h->a = mix(h->a, w);
	h->b = mix(h->b + i, w ^ h->a);
	return 0;
}

/* Mixes n bytes at off into s->hash, after padding them with zeros to a word. */
__noinline int hash_string(struct scratch *s, u32 off, u32 n)
{
	if (!s)
		return 0;
	put8(&s->data[(off + n) & (DATA - 1)], 0);
	s->hash.off = off;
	s->hash.a = mix(s->hash.a, n);
	bpf_loop((n + 7) / 8, hash_word, &s, 0);
	return 0;
}

/* A coalescing key must never take two objects for one. Addresses would: the kernel
 * reuses the memory of a dentry or an inode when it is short of memory, and on tmpfs at
 * once. So the key has an object's number on its file system, the generation, which
 * differs from that of earlier objects with the number, and the bytes of its name. */
__noinline u64 identity(struct scratch *s, u64 inode)
{
	struct inode *i = (void *)inode;
	struct super_block *sb;
	struct walk *w;
	u64 h;

	if (!s)
		return 0;
	w = &s->walk;
	w->ino = w->mode = 0;
	if (!i) {
		w->sb = 0;
		w->dev = 0;
		return 0;
	}
	if (!HAS_WORDS)
		bpf_probe_read_kernel(w->inode, INODE, i);
	w->ino = FIELD_OR_COPIED(w->inode, i, struct inode, i_ino);
	w->mode = FIELD_OR_COPIED(w->inode, i, struct inode, i_mode);
	sb = FIELD_OR_COPIED(w->inode, i, struct inode, i_sb);
	if (HAS_WORDS || !sb || sb != w->sb)
		w->dev = FIELD(sb, struct super_block, s_dev);
	w->sb = sb;
	h = mix(seed, w->ino);
	return mix(h, (u64)FIELD_OR_COPIED(w->inode, i, struct inode, i_generation) << 32 | w->dev);
}

/* The same of the directory that a name is relative to, with the mount that it
 * was reached by. */
static __always_inline u64 place(struct scratch *s, struct path *p)
{
	struct dentry *d = p->dentry;

	s->walk.sb = 0;
	return d ? mix(identity(s, (u64)FIELD(d, struct dentry, d_inode)), (u64)p->mnt) : 0;
}

/* Hashes the name of the dentry that behead has read. */
__noinline u64 hash_name(struct scratch *s, u64 dentry)
{
	struct dentry *d = (void *)dentry;
	struct walk *w;
	u64 name, h;
	u32 n, i;

	if (!s)
		return 0;
	w = &s->walk;
	name = HEAD_WORD(w, d, d_name.name);
	n = HEAD_WORD(w, d, d_name.hash_len) >> 32 & 0xff;
	if (is_short(n, name, dentry)) {
		h = mix(mix(seed, n), name_word(w, name, dentry, 0) & name_mask(n, 0));
		if (n <= 8)
			return h;
#pragma unroll
		for (i = 1; i < SHORT_NAME / 8; i++)
			h = mix(h, name_word(w, name, dentry, i) & name_mask(n, i));
		return h;
	}
	s->hash.a = s->hash.b = seed;
	if (bpf_probe_read_kernel(s->data, n, (void *)name))
		return HEAD_WORD(w, d, d_name.hash_len);
	hash_string(s, 0, n);
	return s->hash.a;
}

/* The words of the coalescing key that say which file. identity saw its inode last. */
static __always_inline void key_file(struct scratch *s, u64 mnt, u64 dentry)
{
	struct dentry *d = (void *)dentry, *parent;
	struct walk *w = &s->walk;
	u64 inode, hash;

	s->key[2] = s->key[4] = s->key[5] = 0;
	s->key[3] = mnt;
	w->sb = 0;
	w->have = !behead(w, dentry);
	if (!w->have) {
		identity(s, 0);
		return;
	}
	hash = hash_name(s, dentry);
	s->key[4] = HEAD_WORD(w, d, d_hash.pprev) ? hash : ~hash; /* deleted */
	parent = (void *)HEAD_WORD(w, d, d_parent);
	inode = HEAD_WORD(w, d, d_inode);
	if (parent != d)
		s->key[5] = identity(s, (u64)FIELD(parent, struct dentry, d_inode));
	s->key[2] = identity(s, inode);
}

static __always_inline void identify(struct record *r, struct inode *inode)
{
	r->ino = BPF_CORE_READ(inode, i_ino);
	r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	r->mode = BPF_CORE_READ(inode, i_mode);
}

#endif
