/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a system call becomes a record: with the kernel's own path, with the
 * names in the caller's memory, or with its arguments alone. */
#ifndef ASSAY_REPORT_H
#define ASSAY_REPORT_H
#include "cache.h"
#include "names.h"
#include "resolve.h"
#include "sessions.h"

#define OPENAT2 437
#define CLONE3 435

/* How the call in s is treated. */
static __always_inline volatile const struct syscall *row(struct scratch *s)
{
	return &syscalls[s->sel & (2 * NSYS - 1)];
}

static __always_inline u64 arg(struct scratch *s, u32 i)
{
	return i < 6 ? s->arg[i] : 0;
}

/* Runs before every handler. Counts the call and hashes the arguments by which
 * repeats differ. */
__noinline int enter(struct scratch *s)
{
	u32 keys, i, flags, mode;
	u64 h = 0;

	if (!s)
		return -1;
	flags = row(s)->flags;
	mode = row(s)->mode;
	s->kind = row(s)->kind;
	s->hook = row(s)->hook;
	s->recorded = row(s)->recorded;
	if (count_fired(s->session, s->hook))
		return -1;
	s->bits = s->name = s->bytes = s->copied = s->read = s->about = 0;
	/* The upper halves of ints are whatever the register held, and so is all of
	 * a mode where nothing is made. */
	if (s->nr == OPENAT2)
		mode = flags = NOARG; /* a pointer and a length still */
	if (mode < 6)
		s->arg[mode] = (u32)s->arg[mode];
	if (row(s)->prog == P_OPEN && flags < 6) {
		s->arg[flags] = (u32)s->arg[flags];
		if (mode < 6 && !(s->arg[flags] & (0100 | 020000000 /* O_CREAT, __O_TMPFILE */)))
			s->arg[mode] = 0;
	}
	keys = row(s)->keys;
#pragma unroll
	for (i = 0; i < 6; i++)
		h = keys & 1 << i ? mix(h, s->arg[i]) : h;
	s->how = h;
	return 0;
}

__noinline int filter(struct scratch *s)
{
	struct counter *c;

	if (s && (c = cell(s->session, s->hook)))
		c->filtered++;
	return 0;
}

__noinline int begin_call(struct scratch *s)
{
	u32 i;

	if (!s)
		return 0;
	begin(s, s->context, s->kind, s->hook);
#pragma unroll
	for (i = 0; i < 6; i++) /* a register that is no argument holds what the program left there */
		s->r.arg[i] = s->recorded & 1 << i ? s->arg[i] : 0;
	s->r.ret = s->ret;
	s->r.nr = s->nr;
	s->r.bits = s->bits;
	if (s->is32)
		s->r.bits |= B_IA32;
	s->resolve.ways = s->resolve.sb = 0;
	s->resolve.exact = s->resolve.keep = 0;
	return 0;
}

/* The number of a task's mount namespace, as /proc/PID/ns/mnt has it. */
static __always_inline u32 mounts_of(struct task_struct *t)
{
	return BPF_CORE_READ(t, nsproxy, mnt_ns, ns.inum);
}

/* Reports the call in s without any path. */
__noinline int report_args(struct scratch *s)
{
	u32 mounts = 0;

	if (!s)
		return 0;
	if (s->kind == K_NAMESPACE) {
		mounts = mounts_of(bpf_get_current_task_btf());
		s->how = mix(s->how, mounts);
	}
	key_who(s, s->kind);
	s->key[2] = s->key[3] = s->key[4] = s->key[5] = 0;
	if (coalesce(s))
		return 0;
	begin_call(s);
	s->r.mode = s->kind == K_NAMESPACE ? mounts : s->about;
	emit_keyed(s, 0);
	return 0;
}

#define FS_REQUIRES_DEV 1 /* linux/fs.h */

/* Whether a file system keeps what is written to its files, here, in memory or on another host. Of those that are not
 * on a device, what is no such file system is how the kernel is controlled. */
static __always_inline int keeps_files(struct super_block *sb, u64 magic)
{
	switch (magic) { /* linux/magic.h, and of zfs, aufs, afs, ceph, vboxsf, shiftfs, secretmem and dma-buf */
	case 0x01021994: case 0x858458f6: case 0x794c7630: case 0x65735546: case 0x6969: case 0x01021997:
	case 0xff534d42: case 0xfe534d42: case 0x00c36400: case 0x958458f6: case 0x19800202: case 0x1cd1:
	case 0x2fc12fc1: case 0x61756673: case 0x5346414f: case 0x6b414653: case 0x786f4256: case 0x6a656a62:
	case 0x5345434d: case 0x444d4142: case 0xf15f: case 0x09041934: case 0x73757245: case 0x47504653:
		return 1;
	}
	return BPF_CORE_READ(sb, s_type, fs_flags) & FS_REQUIRES_DEV;
}

/* Which of the places through which the kernel is controlled a file is. */
__noinline u32 place_of_file(u64 dentry)
{
	struct dentry *d = (void *)dentry;
	struct inode *i = BPF_CORE_READ(d, d_inode);
	struct super_block *sb = BPF_CORE_READ(i, i_sb);
	u64 magic = BPF_CORE_READ(sb, s_magic);
	u32 dev, type;

	switch (magic) {
	case 0x9fa0: /* PROC_SUPER_MAGIC */
		return PL_PROC;
	case 0x62656572: /* SYSFS_MAGIC */
		return PL_SYSFS;
	case 0x42494e4d: /* BINFMTFS_MAGIC */
		return PL_BINFMT;
	case 0x27e0eb: /* CGROUP_SUPER_MAGIC */
	case 0x63677270: /* CGROUP2_SUPER_MAGIC */
		return PL_CGROUP;
	}
	type = BPF_CORE_READ(i, i_mode) & 0170000;
	if (type == 0100000)
		return keeps_files(sb, magic) ? PL_NONE : PL_CONTROL;
	if (type == 0060000)
		return PL_DEVICE;
	if (type != 0020000)
		return PL_NONE;
	dev = BPF_CORE_READ(i, i_rdev);
	if (dev == (10 << 20 | 200))
		return PL_TUN;
	if (dev == (1 << 20 | 1) || dev == (1 << 20 | 2) || dev == (1 << 20 | 4) || dev >> 20 == 202)
		return PL_MEMORY; /* mem, kmem, port, cpu/N/msr */
	return PL_DEVICE;
}

/* Puts at off which device, or which file system, s->r.place is, and the names of the file in it. */
static __always_inline u32 put_place(struct scratch *s, u32 off, u64 dentry)
{
	struct dentry *d = (void *)dentry;
	struct inode *i = BPF_CORE_READ(d, d_inode);
	u32 place = s->r.place, from = off;

	if (place == PL_DEVICE || place == PL_CONTROL) {
		*(u32 *)&s->data[off & (DATA - 1)] = place == PL_DEVICE ? BPF_CORE_READ(i, i_rdev) :
			BPF_CORE_READ(i, i_sb, s_magic);
		off += 4;
	}
	if (place != PL_DEVICE)
		off = walk_inside(s, off, dentry);
	s->r.seg[S_NAME] = off - from;
	return off;
}

#define PIDTYPES 4
#define TGID 1 /* of enum pid_type */

/* The process of a task that a struct pid is the id of, in the first pid namespace, 0 for none. */
__noinline u32 process_with(u64 id, u32 type)
{
	struct pid *pid = (void *)id;
	u64 first = 0;
	struct task_struct *t;

	type &= PIDTYPES - 1;
	if (!pid || bpf_probe_read_kernel(&first, sizeof(first),
		(void *)pid + bpf_core_field_offset(struct pid, tasks) + type * 8) || !first)
		return 0;
	t = (void *)(first - bpf_core_field_offset(struct task_struct, pid_links) - type * 16);
	return BPF_CORE_READ(t, tgid);
}

/* The process that a file of proc is about, in the first pid namespace, 0 for none. */
__noinline u32 process_of(u64 dentry)
{
	struct dentry *d = (void *)dentry;
	struct inode *i = BPF_CORE_READ(d, d_inode);
	struct proc_inode *p = (void *)i - bpf_core_field_offset(struct proc_inode, vfs_inode);
	struct pid *pid = BPF_CORE_READ(p, pid);

	return process_with((u64)pid, 0);
}

/* Whether the call in s can change the file that it is about. */
static __always_inline int to_write(struct scratch *s)
{
	if (s->kind == K_WRITE)
		return 1;
	return s->kind == K_OPENAT && (row(s)->flags == NOARG /* creat */ || arg(s, row(s)->flags) & 3);
}

/* Whether a file is the memory of a process: proc has one of that name for each process and thread. */
static __always_inline int is_memory(u64 dentry)
{
	struct dentry *d = (void *)dentry;
	u32 name = 0;

	if (FIELD(d, struct dentry, d_name.len) != 3 || place_of_file(dentry) != PL_PROC || !process_of(dentry))
		return 0;
	bpf_probe_read_kernel(&name, sizeof(name), FIELD(d, struct dentry, d_name.name));
	return name == *(u32 *)"mem";
}

/* Whether another task can change the current one's directory, or could before it ended. */
__noinline int shares_cwd(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u32 tgid = t->tgid;
	struct member *m = bpf_map_lookup_elem(&members, &tgid);

	return BPF_CORE_READ(t, fs, users) > 1 || (m && m->shared & SHARED_MEMORY);
}

/* As note_way, of that directory. */
__noinline int note_cwd(struct scratch *s, u32 changed)
{
	u32 way = mix(seed, (u64)BPF_CORE_READ(bpf_get_current_task_btf(), fs));

	if (s && shares_cwd())
		s->resolve.way[s->resolve.ways++ & (WAYS - 1)] = (way & ~WAY_CHANGED) | changed;
	return 0;
}

/* Puts the ways of the names at end, where another task could have changed them. */
static __always_inline u32 put_ways(struct scratch *s, u32 end)
{
	struct session *own = session(s->session);
	u32 n = s->resolve.ways * 4;

	if (!own || !own->several || !n)
		return end;
	s->r.seg[S_ENV] = 4 + n;
	*(u32 *)&s->data[end & (DATA - 1)] = age_of_call(s);
	bpf_probe_read_kernel(&s->data[(end + 4) & (DATA - 1)], n & (8 * WAYS - 1), s->resolve.way);
	return end + 4 + n;
}

/* Reports whether the call in s, about the file of (mnt, dentry), repeats another, which is then counted. */
__noinline int repeats_path(struct scratch *s, u64 mnt, u64 dentry)
{
	if (!s)
		return 0;
	key_who(s, s->kind);
	key_file(s, mnt, dentry);
	return coalesce(s);
}

/* Sends the call in s, which repeats none, with the kernel's own path of (mnt, dentry) and, behind
 * it, the string of length s->name at NAME_AT. */
__noinline int send_path(struct scratch *s, u64 mnt, u64 dentry)
{
	u32 n;

	if (!s)
		return 0;
	begin_call(s);
	if (s->kind == K_CHDIR || s->kind == K_CHROOT)
		note_cwd(s, WAY_CHANGED);
	s->r.bits |= B_WALKED;
	s->r.ino = s->walk.ino;
	s->r.dev = s->walk.dev;
	s->r.mode = s->walk.mode;
	if (s->bytes)
		s->r.arg[5] = s->bytes;
	n = walk_known(s, 0, mnt, dentry);
	s->r.bits |= s->walk.bits;
	s->r.seg[S_PATH] = n;
	if (s->name) {
		s->r.seg[S_NAME] = s->name;
		bpf_probe_read_kernel(&s->data[n & (DATA - 1)], s->name & 4095, &s->data[NAME_AT]);
		n += s->name;
	} else if ((to_write(s) || (s->kind == K_OPENAT && is_memory(dentry))) && (s->r.place = place_of_file(dentry))) {
		n = put_place(s, n, dentry);
		if (s->kind == K_OPENAT && s->r.place == PL_PROC)
			s->r.arg[5] = process_of(dentry);
	}
	n = put_ways(s, n);
	emit_keyed(s, n);
	return 0;
}

/* Reports the call in s with the kernel's own path. */
static __always_inline int report_path(struct scratch *s, u64 mnt, u64 dentry)
{
	return repeats_path(s, mnt, dentry) ? 0 : send_path(s, mnt, dentry);
}

static __always_inline int report_file(struct scratch *s, u64 file)
{
	struct file *f = (void *)file;
	struct path p = {};

	bpf_core_read(&p, sizeof(p), &f->f_path);
	return report_path(s, (u64)p.mnt, (u64)p.dentry);
}

/* Whether what is in a mapping can be changed through another mapping or a file: it is
 * shared, or of a file that somebody has open to write. */
static long mapped(struct task_struct *t, struct vm_area_struct *v, void *shared)
{
	struct file *f = BPF_CORE_READ(v, vm_file);

	*(u32 *)shared = BPF_CORE_READ(v, vm_flags) & 0x80 /* VM_MAYSHARE */ ||
		(f && BPF_CORE_READ(f, f_inode, i_writecount.counter) > 0);
	return 0;
}

/* Marks the call's arguments as claimed, if somebody else could have changed the memory at
 * from after the kernel read it: it belongs to further tasks, or did so until they ended
 * during the call, or it is mapped elsewhere. If that cannot be looked up, they are marked. */
__noinline int claim(struct scratch *s, u64 from, u32 len)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u32 tgid = t->tgid, shared = 0;
	struct member *m;

	if (!s || !from || s->bits & B_CLAIMED)
		return 0;
	m = bpf_map_lookup_elem(&members, &tgid);
	if (BPF_CORE_READ(t, mm, mm_users.counter) > 1 || (m && m->shared & SHARED_MEMORY))
		shared = 1;
	else if (bpf_find_vma(t, from, mapped, &shared, 0) == -16 /* EBUSY */)
		shared = 1;
	/* Page sizes are 4096 bytes and more, so names are on two pages at most. */
	if (!shared && (from ^ (from + len)) >> 12 && bpf_find_vma(t, from + len, mapped, &shared, 0) == -16)
		shared = 1;
	if (!shared)
		return 0;
	s->bits |= B_CLAIMED;
	s->how = mix(s->how, B_CLAIMED); /* no repeat of one that is certain */
	return 0;
}

/* openat2's struct open_how replaces the arguments that follow the path, so
 * that flags, mode and resolve stand in arg[2] to arg[4]. */
static __always_inline void read_how(struct scratch *s)
{
	u64 how[3] = {};

	if (s->arg[3] >= sizeof(how) && s->arg[3] <= 4096) { /* else the kernel reads nothing */
		bpf_probe_read_user(how, sizeof(how), (void *)s->arg[2]);
		claim(s, s->arg[2], sizeof(how));
	}
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
	claim(s, from, n > 0 ? n : 1);
	if (n == 0) /* older kernels say so of an empty string, newer ones 1 */
		return 0;
	if (n < 0) {
		if (s->ret != -14) /* EFAULT: the kernel could not read it either */
			s->bits |= B_FAILED_READ;
		return 0;
	}
	if (n == 4096 && s->ret == -36 /* ENAMETOOLONG */)
		s->bits |= B_TRUNCATED;
	hash_string(s, off, n - 1);
	return n - 1;
}

/* The same for a name: the kernel's copy, if there is one. */
static __always_inline u32 take_name(struct scratch *s, u32 off, u64 from)
{
	s32 n;

	if (!from)
		return take_string(s, off, from);
	n = copy_note(s, off, from);
	if (n >= 0) {
		s->copied++;
		hash_string(s, off, n);
		return n;
	}
	if (n == DIFFER)
		s->bits |= B_CLAIMED;
	s->read++;
	return take_string(s, off, from);
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
 * begins, or 0. The same of /proc/self/fd/N where that link is followed. */
__noinline u64 below_fd(struct scratch *s, u32 off, u32 follow)
{
	const u32 first = 14, digits = 8;
	u32 fd = 0, i;
	u8 *name;

	if (!s)
		return 0;
	name = &s->data[off & (DATA - 1)];
	if (get8(name) != *(u64 *)"/proc/se" || (get8(name + 8) ^ *(u64 *)"lf/fd/\0\0") << 16)
		return 0;
#pragma clang loop unroll(disable)
	for (i = first; i < first + digits; i++) {
		u8 c = s->data[(off + i) & (DATA - 1)];

		if (c == '/' && i > first)
			return s->data[(off + i + 1) & (DATA - 1)] == '/' ? 0 : (u64)(i + 1) << 32 | fd;
		if (!c && i > first && follow)
			return (u64)i << 32 | fd;
		if (c < '0' || c > '9')
			return 0;
		fd = fd * 10 + c - '0';
	}
	return 0;
}

/* How much of the name at off leads to the directory, or root, of the caller's process or
 * thread, by way of /proc/self or /proc/thread-self: up to what is below that, or 0. */
static __always_inline u32 below_own(struct scratch *s, u32 off, struct path *base)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u8 *name = &s->data[off & (DATA - 1)];
	u64 first = get8(name), second = get8(name + 8), third;
	u32 root = 0, n;

	if (first == *(u64 *)"/proc/se") {
		root = second == *(u64 *)"lf/root/";
		if (!root && (second ^ *(u64 *)"lf/cwd/\0") << 8)
			return 0;
		n = 15 + root;
		t = BPF_CORE_READ(t, group_leader);
	} else if (first == *(u64 *)"/proc/th" && second == *(u64 *)"read-sel") {
		third = get8(name + 16);
		root = !((third ^ *(u64 *)"f/root/\0") << 8);
		if (!root && (third ^ *(u64 *)"f/cwd/\0\0") << 16)
			return 0;
		n = 22 + root;
	} else {
		return 0;
	}
	if (s->data[(off + n) & (DATA - 1)] == '/' || !s->data[(off + n) & (DATA - 1)])
		return 0;
	if (root)
		root_of(t, base);
	else
		here(t, base);
	return n;
}

/* A name in the caller's memory and where it begins. */
struct given {
	struct path base, root;
	u32 at, len;    /* of the name as given */
	u32 from, skip; /* where the part that is relative to base begins */
	u32 follow;     /* a link as its last part, too */
	u32 from_cwd;   /* base is the current directory */
};

/* Whether the call follows a link that its first name ends in. */
static __always_inline u32 follows(struct scratch *s)
{
	u64 flags = arg(s, row(s)->flags);

	switch (row(s)->follow) {
	case FOLLOW_ALWAYS:
		return 1;
	case FOLLOW_UNLESS:
		return !(flags & 0x100); /* AT_SYMLINK_NOFOLLOW */
	case FOLLOW_IF:
		return flags >> 10 & 1; /* AT_SYMLINK_FOLLOW */
	case FOLLOW_UMOUNT:
		return !(flags & 8); /* UMOUNT_NOFOLLOW */
	}
	return 0;
}

/* Reads the name from user memory to g->at and finds its base. */
__noinline int take_given(struct scratch *s, struct given *g, u64 from, s32 dfd)
{
	u64 below;
	u32 own;

	if (!s || !g)
		return 0;
	g->len = take_name(s, g->at, from);
	g->from = g->at;
	root_of(bpf_get_current_task_btf(), &g->root);
	if (s->nr == OPENAT2 && s->arg[4] & RESOLVE_IN_ROOT) {
		dir_of(dfd, &g->base);
		g->root = g->base;
		return 0;
	}
	if (s->data[g->at & (DATA - 1)] != '/') {
		g->from_cwd = dfd == -100; /* AT_FDCWD */
		return dir_of(dfd, &g->base);
	}
	own = below_own(s, g->at, &g->base);
	if (own) {
		g->skip = own;
		g->from = g->at + own;
		return 0;
	}
	below = below_fd(s, g->at, g->follow);
	if (below >> 32 && g->len >= below >> 32 && !dir_of((u32)below, &g->base)) {
		g->skip = below >> 32;
		g->from = g->at + g->skip;
		return 0;
	}
	g->base = g->root;
	return 0;
}

/* Whether the name at off begins at the root of a procfs, whatever else is mounted, or stands, at /proc. */
__noinline int in_proc(struct scratch *s, u32 off, struct given *g)
{
	u8 *name = &s->data[(off + 6) & (DATA - 1)];
	struct dentry *d;
	struct path base;
	u16 kept;

	if (!s || !g)
		return 0;
	base = g->root;
	kept = *(u16 *)name;
	*(u16 *)name = '.'; /* /proc/., so that what is mounted there is at hand */
	s->resolve.follow = s->resolve.changes = 0;
	resolve(s, off, ROOM_AT, &base, &g->root);
	*(u16 *)name = kept;
	d = base.dentry;
	return !s->resolve.missing && !s->resolve.lost && BPF_CORE_READ(d, d_parent) == d &&
		BPF_CORE_READ(d, d_sb, s_magic) == 0x9fa0 /* PROC_SUPER_MAGIC */;
}

/* Takes the name from its beginning where that is no procfs's. */
static __always_inline void distrust(struct scratch *s, struct given *g)
{
	if (!g->skip || in_proc(s, g->at, g))
		return;
	g->skip = 0;
	g->from = g->at;
	g->base = g->root;
}

/* Puts a name at end of the record: the part that was not resolved, and the
 * directory that it is in. */
__noinline u32 put_given(struct scratch *s, u32 end, u32 seg, u32 room, struct given *g)
{
	u32 from, next;
	long n;

	if (!s || !g)
		return end;
	if (g->from_cwd)
		note_cwd(s, 0);
	s->resolve.follow = g->follow;
	s->resolve.changes = s->kind == K_RENAME || s->kind == K_SYMLINK || s->kind == K_LINK;
	from = resolve(s, g->from, room, &g->base, &g->root);
	if (s->resolve.changed)
		g->skip = 1;
	s->r.bits |= s->resolve.bits;
	n = bpf_probe_read_kernel_str(&s->data[end & (DATA - 1)], 4096, &s->data[from & (DATA - 1)]);
	n = n > 0 ? n - 1 : 0;
	if (!n && g->len) { /* the directory itself */
		s->data[end & (DATA - 1)] = '.';
		n = 1;
	}
	s->r.seg[seg & (S_COUNT - 1)] = n;
	end += n;
	if (!g->base.dentry) {
		s->r.bits |= B_NO_BASE;
		return end;
	}
	next = walk_base(s, end, &g->base);
	s->r.seg[(seg + 1) & (S_COUNT - 1)] = next - end;
	return next;
}

/* Puts the name as it was given at end, if put_given has put another. */
static __always_inline u32 put_original(struct scratch *s, u32 end, u32 seg, struct given *g)
{
	if (!g->skip)
		return end;
	s->r.seg[seg] = g->len;
	bpf_probe_read_kernel(&s->data[end & (DATA - 1)], g->len & 4095, &s->data[g->at & (DATA - 1)]);
	return end + g->len;
}

/* Sends the record whose directories and names end at end, with the further string, the
 * ways of the names, where another task could have changed them, and the names as given. */
static __always_inline void send_names(struct scratch *s, u32 end, struct given *a, struct given *b)
{
	u32 n = s->name;

	if (n) {
		s->r.seg[S_NAME] = n;
		bpf_probe_read_kernel(&s->data[end & (DATA - 1)], n & 4095, &s->data[NAME_AT]);
		end += n;
	}
	end = put_ways(s, end);
	end = put_original(s, end, S_TOOL, a);
	end = put_original(s, end, S_TRACE, b);
	emit_keyed(s, end);
}

/* Whether another task can put another file on a descriptor of the current one's, or could before it ended. */
static __always_inline int shares_descriptors(struct scratch *s)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct session *own = session(s->session);
	u32 tgid = t->tgid;
	struct member *m;

	if (!own || !own->several)
		return 0;
	if (FIELD(FIELD(t, struct task_struct, files), struct files_struct, count.counter) > 1)
		return 1;
	m = bpf_map_lookup_elem(&members, &tgid);
	return m && m->shared & SHARED_DESCRIPTORS;
}

/* Tells repeats of the open in s apart by its name, too, and by where that begins. So those of one name that came
 * to one file are compared once, and again after a while, since others than the session may rename. */
__noinline int key_name(struct scratch *s)
{
	u64 at, name = mix(seed, bpf_jiffies64() >> 8);
	struct path from = {};
	struct note *note;
	u32 i, n, bits;
	u8 first;

	if (!s)
		return 0;
	at = arg(s, row(s)->path);
	note = only_note(s, at);
	n = note ? note->len : SHORT + 1;
	if (note && n <= SHORT) {
		first = note->name[0];
		asm volatile("" : "+r"(n)); /* or the compiler leaves the bound out that Linux 6.1 sees */
#pragma clang loop unroll(disable)
		for (i = 0; i < SHORT && i < n; i += 8)
			name = mix(name, get8(&note->name[i]));
	} else {
		bits = s->bits;
		s->hash.a = s->hash.b = seed;
		if (!note || copy_note(s, IN_AT, at) != n)
			take_string(s, IN_AT, at);
		else
			hash_string(s, IN_AT, n);
		s->bits = bits;
		first = s->data[IN_AT];
		name = mix(name, s->hash.a);
	}
	root_of(bpf_get_current_task_btf(), &from);
	name = mix(name, place(s, &from));
	if (first != '/' && !dir_of(row(s)->dfd == NOARG ? -100 : (s32)arg(s, row(s)->dfd), &from))
		name = mix(name, place(s, &from));
	s->how = mix(s->how, name);
	return 0;
}

/* Marks the open in s as claimed if its name does not lead to the file now: another task may have put the file on
 * the descriptor. If that cannot be looked up, it is marked. s->how has the name. */
__noinline int compare_opened(struct scratch *s, u64 dentry)
{
	struct dentry *d = (void *)dentry;
	struct given g = {.at = IN_AT};
	struct resolve *r;
	u32 bits;

	if (!s)
		return 0;
	r = &s->resolve;
	bits = s->bits;
	take_given(s, &g, arg(s, row(s)->path), row(s)->dfd == NOARG ? -100 : (s32)arg(s, row(s)->dfd));
	s->bits = bits;
	s->walk.have = 0;
	r->follow = r->exact = 1;
	r->made_up = g.skip;
	r->changes = r->ways = r->sb = 0;
	r->keep = (BPF_CORE_READ(d, d_inode, i_mode) & 0170000) == 0120000;
	resolve(s, g.from, ROOM_AT, &g.base, &g.root);
	if (r->target) {
		r->dentry = r->target;
		if (r->mnt)
			bpf_loop(8, cross, &s, 0);
	}
	if (r->made_up) /* where the next of the same name leads is told by descriptors */
		s->has_slot = 0;
	if (arg(s, row(s)->flags) & 020000000 /* __O_TMPFILE */)
		d = BPF_CORE_READ(d, d_parent);
	if (r->missing || r->lost || r->dentry != d)
		s->bits |= B_CLAIMED;
	return 0;
}

/* Reports the call in s with the names in the caller's memory. */
__noinline int report_names(struct scratch *s)
{
	struct given a = {.at = IN_AT}, b = {.at = IN2_AT};
	u32 end = 0, repeats;

	if (!s)
		return 0;
	s->hash.a = seed;
	s->hash.b = s->how;
	a.follow = follows(s);
	if (row(s)->path != NOARG)
		take_given(s, &a, arg(s, row(s)->path), row(s)->dfd == NOARG ? -100 : (s32)arg(s, row(s)->dfd));
	if (row(s)->path2 != NOARG)
		take_given(s, &b, arg(s, row(s)->path2), row(s)->dfd2 == NOARG ? -100 : (s32)arg(s, row(s)->dfd2));
	if (row(s)->name != NOARG && s->kind == K_SYMLINK)
		s->name = take_name(s, NAME_AT, arg(s, row(s)->name));
	else if (row(s)->name != NOARG)
		s->name = take_string(s, NAME_AT, arg(s, row(s)->name));
	if (s->copied && !s->read)
		s->bits |= B_COPIED;
	s->how = mix(s->how, s->bits & (B_COPIED | B_CLAIMED)); /* what is certain and what is not are no repeats */

	key_who(s, s->kind);
	s->key[2] = s->hash.a;
	s->key[3] = s->hash.b;
	s->key[4] = place(s, &a.base);
	s->key[5] = place(s, &b.base);
	s->named = 1;
	repeats = coalesce(s);
	s->named = 0;
	if (repeats)
		return 0;
	begin_call(s);
	distrust(s, &a);
	distrust(s, &b);
	s->resolve.ways = s->resolve.sb = 0;
	if (row(s)->path != NOARG)
		end = put_given(s, end, S_PATH, ROOM_AT, &a);
	if (row(s)->path2 != NOARG)
		end = put_given(s, end, S_PATH2, ROOM2_AT, &b);
	send_names(s, end, &a, &b);
	return 0;
}

#endif
