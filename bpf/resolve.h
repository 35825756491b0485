/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Names from the caller's memory, resolved as the kernel did: "..", symbolic
 * links and mounts on the way, but for the last part. What a call has just looked
 * up is in the kernel's cache of names, so each part is one look into it, with the
 * kernel's own hash. What is not found there is not guessed. */
#ifndef ASSAY_RESOLVE_H
#define ASSAY_RESOLVE_H
#include "path.h"

/* Where the cache is: user space finds out with locate, below. Without a shift
 * nothing is looked up. */
u64 cache_at;
u32 cache_shift;
u32 mounted_bit; /* DCACHE_MOUNTED */

#define COMPOSE_AT 57344 /* where a link's content and what follows it are put together */
#define MAX_LINKS 40     /* MAXSYMLINKS */
#define MAX_PARTS 512
#define MAX_CHAIN 256
#define MAX_MOUNTS 8192

#define GOLDEN_RATIO 0x61C8864680B583EBULL

/* Eight more bytes of a part: its length and, as hash_name() and fold_hash() of
 * fs/namei.c (CONFIG_DCACHE_WORD_ACCESS), its hash. */
static long part_word(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	u64 w = get8(&s->data[(r->at + r->len) & (DATA - 1)]);
	u64 end = HAS_ZERO(w) | HAS_ZERO(w ^ REPEAT('/'));

	if (!end) {
		r->x ^= w;
		r->y ^= r->x;
		r->x = r->x << 12 | r->x >> 52;
		r->x += r->y;
		r->y = r->y << 45 | r->y >> 19;
		r->y *= 9;
		r->len += 8;
		return 0;
	}
	r->len += FIRST(end);
	r->x ^= w & BEFORE(end);
	r->y ^= r->x * GOLDEN_RATIO;
	r->y *= GOLDEN_RATIO;
	r->hash = r->y >> 32;
	return 1;
}

/* Whether the name of the dentry that behead has read is the part at hand. Of one
 * longer than 40 bytes the hash decides. */
static __always_inline int same_name(struct scratch *s, u64 dentry)
{
	struct resolve *r = &s->resolve;
	struct walk *w = &s->walk;
	struct dentry *d = (void *)dentry;
	u64 name = HEAD_WORD(w, d, d_name.name), differs = 0;
	u32 i, n = r->len;

	if (!is_short(n, name, dentry))
		return 1;
#pragma unroll
	for (i = 0; i < SHORT_NAME / 8; i++) {
		differs |= (name_word(w, name, dentry, i) ^ get8(&s->data[(r->at + i * 8) & (DATA - 1)])) & name_mask(n, i);
	}
	return !differs;
}

static long chain_entry(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	struct walk *w = &s->walk;
	struct dentry *d;
	u64 at = r->node & ~1ULL;

	if (!at)
		return 1;
	d = (void *)(at - bpf_core_field_offset(struct dentry, d_hash));
	if (behead(w, (u64)d))
		return 1;
	if (HEAD_WORD(w, d, d_parent) == (u64)r->dentry &&
		HEAD_WORD(w, d, d_name.hash_len) == ((u64)r->len << 32 | r->hash) && same_name(s, (u64)d)) {
		r->found = d;
		return 1;
	}
	r->node = HEAD_WORD(w, d, d_hash.next);
	return 0;
}

static long mount_entry(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	struct list_head *at = (void *)r->node;
	struct mount *m;

	if (!at || (u64)at == r->head)
		return 1;
	m = (void *)at - bpf_core_field_offset(struct mount, mnt_child);
	if (BPF_CORE_READ(m, mnt_mountpoint) == r->dentry) {
		r->mnt = m;
		r->found = BPF_CORE_READ(m, mnt.mnt_root);
		return 1;
	}
	r->node = (u64)BPF_CORE_READ(at, next);
	return 0;
}

/* Whether others than the tasks of this host can change what is in a file system. */
static __always_inline int remote(u64 sb)
{
	u32 magic = FIELD((struct super_block *)sb, struct super_block, s_magic);

	switch (magic) {
	case 0x65735546: /* FUSE */
	case 0x6969:     /* NFS */
	case 0xff534d42: /* CIFS */
	case 0xfe534d42: /* SMB2 */
	case 0x517b:     /* SMB */
	case 0x01021997: /* 9P */
	case 0x00c36400: /* CEPH */
	case 0x5346414f: /* OpenAFS */
	case 0x6b414653: /* AFS */
	case 0x73757245: /* CODA */
	case 0x7461636f: /* OCFS2 */
	case 0x01161970: /* GFS2 */
	case 0x0bd00bd0: /* Lustre */
	case 0x20030528: /* OrangeFS */
	case 0x786f4256: /* vboxsf */
	case 0xbacbacbc: /* vmhgfs */
		return 1;
	}
	return 0;
}

/* Notes an entry of a directory, by the directory and what the kernel's hash of the name
 * and its length are. */
__noinline int note_way(struct scratch *s, u64 directory, u64 hash_len, u32 changed)
{
	struct dentry *d = (void *)directory;
	struct resolve *r;
	u64 sb;

	if (!s || !directory)
		return 0;
	r = &s->resolve;
	if (r->ways >= WAYS - 1) {
		r->way[0] = WAY_OPEN; /* there were more */
		return 0;
	}
	r->way[r->ways++ & (WAYS - 1)] = ((u32)mix(mix(seed, directory), hash_len) & ~WAY_CHANGED) | changed;
	sb = (u64)FIELD(d, struct dentry, d_sb);
	if (sb == r->sb)
		return 0;
	r->sb = sb;
	if (remote(sb))
		r->way[r->ways++ & (WAYS - 1)] = WAY_OPEN;
	return 0;
}

/* If something is mounted on the directory at hand, goes to its root. */
static long cross(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	/* In locals: an expression inside BPF_CORE_READ is relocated as a whole. */
	struct dentry *d = r->dentry;
	struct mount *m = r->mnt;

	if (!(BPF_CORE_READ(d, d_flags) & mounted_bit))
		return 1;
	r->found = 0;
	r->head = (u64)m + bpf_core_field_offset(struct mount, mnt_mounts);
	r->node = (u64)BPF_CORE_READ(m, mnt_mounts.next);
	bpf_loop(MAX_MOUNTS, mount_entry, arg, 0);
	if (!r->found)
		return 1;
	r->dentry = r->found;
	return 0;
}

/* One step towards the parent: out of a mount, or up. */
static long climb(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	struct dentry *d = r->dentry;
	struct mount *m = r->mnt, *up;

	if (d == r->root && m == r->root_mnt)
		return 1;
	if (d != BPF_CORE_READ(m, mnt.mnt_root)) {
		r->dentry = BPF_CORE_READ(d, d_parent);
		note_way(s, (u64)r->dentry, BPF_CORE_READ(d, d_name.hash_len), 0);
		return 1;
	}
	up = BPF_CORE_READ(m, mnt_parent);
	if (up == m)
		return 1;
	r->dentry = BPF_CORE_READ(m, mnt_mountpoint);
	r->mnt = up;
	return 0;
}

/* Puts a number at off. Returns the offset behind it. */
static __always_inline u32 put_number(struct scratch *s, u32 off, u32 number)
{
	u32 i, n = 1, unit = 1;

#pragma clang loop unroll(disable)
	for (i = 0; i < 9 && number / unit >= 10; i++) {
		unit *= 10;
		n++;
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < 10 && unit; i++) {
		s->data[(off + i) & (DATA - 1)] = '0' + number / unit % 10;
		unit /= 10;
	}
	return off + n;
}

/* The number of a process or thread in that pid namespace, 0 for none. */
static __always_inline u32 number_in(struct pid *id, struct pid_namespace *ns)
{
	struct upid *at = (void *)id + bpf_core_field_offset(struct pid, numbers) +
		(BPF_CORE_READ(ns, level) & 31) * bpf_core_type_size(struct upid);

	return BPF_CORE_READ(at, ns) == ns ? BPF_CORE_READ(at, nr) : 0;
}

#define JUMPED 1

/* Where a link of proc leads that the kernel makes up when it is followed: its content is put at
 * COMPOSE_AT, and its length and a zero's returned. With JUMPED, the link is a descriptor of the
 * caller's, or its program, and that file is at hand. 0: it is none such. */
__noinline long proc_link(struct scratch *s, u64 dentry)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct dentry *d = (void *)dentry, *up = BPF_CORE_READ(d, d_parent);
	struct proc_inode *p = (void *)BPF_CORE_READ(d, d_inode) - bpf_core_field_offset(struct proc_inode, vfs_inode);
	struct proc_dir_entry *pde;
	struct proc_fs_info *info;
	struct pid *of;
	struct file *f;
	u32 end = COMPOSE_AT, fd = 0, i;
	struct resolve *r;

	if (!s || BPF_CORE_READ(d, d_sb, s_magic) != 0x9fa0 /* PROC_SUPER_MAGIC */)
		return 0;
	r = &s->resolve;
	r->name = r->in = 0;
	pde = BPF_CORE_READ(p, pde);
	if (pde) /* /proc/mounts, /proc/net */
		return bpf_probe_read_kernel_str(&s->data[COMPOSE_AT], 4096, BPF_CORE_READ(pde, data));
	bpf_probe_read_kernel(&r->name, sizeof(r->name), BPF_CORE_READ(d, d_name.name));
	if (up == BPF_CORE_READ(up, d_parent)) {
		info = BPF_CORE_READ(d, d_sb, s_fs_info);
		end = put_number(s, end, number_in(BPF_CORE_READ(t, group_leader, thread_pid), BPF_CORE_READ(info, pid_ns)));
		if (r->name == *(u64 *)"thread-s") {
			put8(&s->data[end & (DATA - 1)], *(u64 *)"/task/\0");
			end = put_number(s, end + 6, number_in(BPF_CORE_READ(t, thread_pid), BPF_CORE_READ(info, pid_ns)));
		} else if (r->name << 24 != *(u64 *)"\0\0\0self") {
			return 0;
		}
		s->data[end & (DATA - 1)] = 0;
		return end - COMPOSE_AT + 1;
	}
	bpf_probe_read_kernel(&r->in, 3, BPF_CORE_READ(up, d_name.name));
	of = BPF_CORE_READ(p, pid);
	if (of != BPF_CORE_READ(t, group_leader, thread_pid) && of != BPF_CORE_READ(t, thread_pid))
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; r->in == ('f' | 'd' << 8) && i < 8 && (u8)(r->name >> i * 8); i++)
		fd = fd * 10 + (u8)(r->name >> i * 8) - '0';
	if (i)
		f = (void *)file_at(fd);
	else
		f = (u32)r->name == *(u32 *)"exe" ? BPF_CORE_READ(t, mm, exe_file) : 0;
	if (!f)
		return 0;
	r->dentry = BPF_CORE_READ(f, f_path.dentry);
	r->mnt = (void *)BPF_CORE_READ(f, f_path.mnt) - bpf_core_field_offset(struct mount, mnt);
	return JUMPED;
}

/* Puts a link's content in the place of its name. */
static __always_inline int follow(struct scratch *s, struct dentry *d, struct inode *inode)
{
	struct resolve *r = &s->resolve;
	u64 link = (u64)BPF_CORE_READ(inode, i_link);
	long n = 0, more;

	if (r->links++ >= MAX_LINKS)
		return -1;
	if (link)
		n = bpf_probe_read_kernel_str(&s->data[COMPOSE_AT], 4096, (void *)link);
	else if (r->exact)
		n = proc_link(s, (u64)d);
	r->made_up |= !link;
	if (n == JUMPED) {
		r->at += r->len;
		r->target = r->dentry;
		return 0;
	}
	if (n < 2)
		return -1;
	r->target = 0;
	n = (n - 1) & 4095;
	more = bpf_probe_read_kernel_str(&s->data[COMPOSE_AT + n], 4096, &s->data[(r->at + r->len) & (DATA - 1)]);
	if (more < 1 || n + more > 4095)
		return -1;
	if (bpf_probe_read_kernel_str(&s->data[r->room & (DATA - 1)], 4096, &s->data[COMPOSE_AT]) < 1)
		return -1;
	r->at = r->room;
	if (s->data[r->at & (DATA - 1)] == '/') {
		r->dentry = r->root;
		r->mnt = r->root_mnt;
	}
	return 0;
}

/* Goes one part further. Ends at the last part, or where a part is not found. The last is looked
 * up only if the call follows it where it is a link. */
static long part(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct resolve *r = &s->resolve;
	struct inode *inode;
	struct dentry *d;
	u32 type, last;
	u16 two;

	if (s->data[r->at & (DATA - 1)] == '/') {
		r->at++;
		return 0;
	}
	r->len = 0;
	r->x = 0;
	r->y = (u64)r->dentry;
	if (bpf_loop(513, part_word, arg, 0) > 512 || r->len > 255) {
		r->missing = r->len != 0;
		return 1;
	}
	if (!r->len)
		return 1;
	two = *(u16 *)&s->data[r->at & (DATA - 1)];
	if (r->len == 1 && (u8)two == '.') {
		if (!s->data[(r->at + 1) & (DATA - 1)])
			return 1;
		r->at++;
		return 0;
	}
	if (r->len == 2 && two == ('.' | '.' << 8)) {
		r->changed = 1;
		bpf_loop(32, climb, arg, 0);
		bpf_loop(8, cross, arg, 0);
		r->at += 2;
		return 0;
	}
	/* The last part stays, with the slashes behind it. */
	r->end = r->at + r->len;
	if (s->data[r->end & (DATA - 1)] == '/')
		r->end++;
	if (s->data[r->end & (DATA - 1)] == '/') /* "//" and more: one is enough to tell, look further */
		r->end++;
	last = !s->data[r->end & (DATA - 1)];
	if (last && r->changes)
		note_way(s, (u64)r->dentry, (u64)r->len << 32 | r->hash, WAY_CHANGED);
	if (last && !r->follow)
		return 1;
	note_way(s, (u64)r->dentry, (u64)r->len << 32 | r->hash, 0);
	r->missing = 1;
	if (!cache_shift) {
		r->lost = 1;
		return 1;
	}
	bpf_probe_read_kernel(&r->node, 8, (void *)(cache_at + (u64)(r->hash >> (cache_shift & 31)) * 8));
	r->found = 0;
	bpf_loop(MAX_CHAIN, chain_entry, arg, 0);
	d = r->found;
	if (!d)
		return 1;
	inode = BPF_CORE_READ(d, d_inode);
	if (!inode)
		return 1;
	type = BPF_CORE_READ(inode, i_mode) & 0170000;
	if (type == 0120000 && !(last && r->keep)) {
		r->changed = 1;
		r->lost = follow(s, d, inode) != 0;
		r->missing = r->lost;
		return r->lost;
	}
	if (last) {
		r->missing = 0;
		r->target = d;
	}
	if (last || type != 0040000)
		return 1;
	r->missing = 0;
	r->target = 0;
	r->dentry = d;
	r->at += r->len;
	bpf_loop(8, cross, arg, 0);
	return 0;
}

/* Resolves the name at offset at, relative to p, as far as it goes: p is then the
 * last directory that was reached, and the result the offset of what remains.
 * room is where 4096 bytes are free. Bits for the record are in s->resolve.bits. */
static __always_inline u32 resolve(struct scratch *s, u32 at, u32 room, struct path *p, struct path *root)
{
	struct resolve *r;

	if (!s || !p || !root)
		return at;
	r = &s->resolve;
	r->bits = r->changed = r->missing = r->lost = r->links = 0;
	r->target = 0;
	if (!p->dentry || !p->mnt || !root->mnt)
		return at;
	r->at = at;
	r->room = room;
	r->dentry = p->dentry;
	r->mnt = (void *)p->mnt - bpf_core_field_offset(struct mount, mnt);
	r->root = root->dentry;
	r->root_mnt = (void *)root->mnt - bpf_core_field_offset(struct mount, mnt);
	if (bpf_loop(MAX_PARTS, part, &s, 0) >= MAX_PARTS)
		r->lost = 1;
	/* What was looked up must exist, unless the call failed because it does not:
	 * ENOENT, EACCES, ENOTDIR, ELOOP, ENAMETOOLONG. */
	if (r->missing && s->ret != -2 && s->ret != -13 && s->ret != -20 && s->ret != -40 && s->ret != -36)
		r->lost = 1;
	if (r->lost)
		r->bits |= B_UNRESOLVED;
	p->dentry = r->dentry;
	p->mnt = (void *)r->mnt + bpf_core_field_offset(struct mount, mnt);
	return r->at;
}

/* What user space asks of a descriptor of its own, to find the cache: where the
 * entry of its file hangs, and its hash. An entry that was just made is the first
 * in its chain, which hangs on the cache itself. */
struct place_of {
	u32 fd, hash;
	u64 hangs_on;
};

SEC("syscall")
int locate(struct place_of *ctx)
{
	struct file *f = (void *)file_of(ctx->fd);
	struct path p = {};
	struct dentry *d;

	if (!f || bpf_core_read(&p, sizeof(p), &f->f_path))
		return 1;
	d = p.dentry;
	ctx->hash = BPF_CORE_READ(d, d_name.hash);
	ctx->hangs_on = (u64)BPF_CORE_READ(d, d_hash.pprev);
	return 0;
}

#endif
