/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls on files, by what they take: names, a descriptor, the current
 * directory. Each handler gets a call that is in scope, and reports it. */
#ifndef ASSAY_FILES_H
#define ASSAY_FILES_H
#include "bpfcall.h"
#include "netlink.h"

#define FMODE_CREATED (1 << 20) /* include/linux/fs.h */

#if defined(__TARGET_ARCH_x86)
#define O_LARGEFILE 0100000
#else
#define O_LARGEFILE 0400000
#endif

/* Of the flags in the caller's memory only those stay that an open file does not keep, and
 * one that it has unasked. */
static __always_inline void use_flags(struct scratch *s, u32 flags)
{
	const u64 asked = 0100 | 0200 | 0400 | 01000 | 02000000 /* O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC, O_CLOEXEC */ |
		O_LARGEFILE;

	s->arg[2] = (s->arg[2] & asked) | (flags & ~asked);
	if (s->bits & B_CREATED)
		s->arg[2] |= 0100;
	s->how = mix(s->how, s->arg[2]);
}

__noinline int on_open(struct scratch *s)
{
	struct file *file;
	struct vfsmount *mnt;
	struct dentry *d;
	struct walk *w;
	int shared;
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
	file = (void *)f;
	w = &s->walk;
	if (!HAS_WORDS)
		bpf_probe_read_kernel(w->file, FILE, file);
	mnt = FIELD_OR_COPIED(w->file, file, struct file, f_path.mnt);
	d = FIELD_OR_COPIED(w->file, file, struct file, f_path.dentry);
	if (FIELD_OR_COPIED(w->file, file, struct file, f_mode) & FMODE_CREATED) {
		s->bits |= B_CREATED;
		s->how = mix(s->how, B_CREATED); /* the next open of the name is another event */
	}
	if (s->nr == OPENAT2)
		use_flags(s, FIELD_OR_COPIED(w->file, file, struct file, f_flags));
	shared = shares_descriptors(s);
	if (shared)
		key_name(s);
	if (repeats_path(s, (u64)mnt, (u64)d))
		return 0;
	if (shared)
		compare_opened(s, (u64)d);
	return send_path(s, (u64)mnt, (u64)d);
}

/* Puts the beginning of the type that mount(2) was given, a name, in the place of its address. */
__noinline int note_type(struct scratch *s)
{
	u64 type[2] = {};

	if (!s)
		return 0;
	claim(s, s->arg[2], sizeof(type[0]));
	bpf_probe_read_user_str(type, sizeof(type), (void *)s->arg[2]);
	s->arg[2] = type[0];
	s->how = mix(s->how, type[0]);
	return 0;
}

/* Calls that take names. */
__noinline int on_path(struct scratch *s)
{
	u32 kind;

	if (!s)
		return 0;
	kind = s->kind;
	if (kind == K_EXEC_FAILED && s->ret >= 0)
		return filter(s); /* sched_process_exec has it */
	if (kind == K_UNLINK && row(s)->dfd != NOARG && s->arg[2] & 0x200)
		kind = K_RMDIR; /* unlinkat with AT_REMOVEDIR */
	if (kind == K_MOUNT && row(s)->name == 0 && row(s)->path == 1)
		note_type(s);
	if (s->ret >= 0 && (kind == K_RENAME || kind == K_RMDIR || kind == K_MOUNT || kind == K_SYMLINK || kind == K_LINK))
		rearranged(s); /* the same names may mean other files now */
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
	if (shares_cwd())
		s->how = bpf_ktime_get_boot_ns(); /* when it was matters to the other tasks */
	if (s->kind == K_CHROOT) {
		root_of(t, &p);
		rearranged(s); /* the same names mean other files now */
	} else
		here(t, &p);
	return report_path(s, (u64)p.mnt, (u64)p.dentry);
}

/* What keeps what is written to it: regular files and block devices. */
static __always_inline int keeps(u64 file)
{
	u32 type = type_of(file);

	return type == 0100000 || type == 0060000;
}

/* Bytes into such files, and what kept them out. */
__noinline int on_write(struct scratch *s)
{
	u32 type = 0;
	u64 f;

	if (!s)
		return 0;
	f = file_of(arg(s, row(s)->fd));
	if (f)
		type = type_of(f);
	if (s->ret == 0 || (type != 0100000 && type != 0060000)) {
		struct sock *netlink = netlink_of(f);

		filter(s);
		if (netlink) /* sendfile and splice send as many messages as they like */
			report_wanted(s, (u64)netlink, s->ret < 0 ? 0 : row(s)->dfd == NOARG ? 1 : ~0U);
		if (type == 0140000 && s->ret >= 0 && !made_beside(f))
			report_foreign(s, f);
	} else {
		if (s->ret > 0)
			s->bytes = s->ret;
		report_file(s, f);
	}
	return row(s)->dfd != NOARG ? used(s, arg(s, row(s)->dfd)) : 0; /* what sendfile and splice read */
}

/* A request for io_submit, linux/aio_abi.h. */
struct iocb {
	u64 data, key;
	u16 opcode, prio;
	u32 fd;
	u64 buf, bytes;
};

static long aio_request(u32 i, void *arg)
{
	struct scratch *s = *(struct scratch **)arg;
	struct iocb b = {};
	u32 size = s->is32 ? 4 : 8;
	u64 at = 0, f;

	if (bpf_probe_read_user(&at, size, (void *)s->arg[2] + i * size) ||
		bpf_probe_read_user(&b, sizeof(b), (void *)at)) {
		count_loss(s->session, s->hook);
		return 0;
	}
	if (b.opcode > 1 && b.opcode != 7 && b.opcode != 8) /* PREAD, PWRITE, PREADV, PWRITEV */
		return 0;
	f = file_of(b.fd);
	if (f && type_of(f) == 0140000)
		s->foreign = f;
	if (!(b.opcode & ~7 || b.opcode == 1) || !f || !keeps(f))
		return 0;
	if (count_fired(s->session, s->hook))
		return 1;
	s->bytes = b.opcode == 1 ? b.bytes : 0;
	report_file(s, f);
	return 0;
}

/* Writes that go on in the background: s->ret is how many requests were taken. */
__noinline int on_aio(struct scratch *s)
{
	u32 n;

	if (!s)
		return 0;
	n = s->ret > 0 ? s->ret : 0;
	s->ret = s->arg[5] = 0;
	s->foreign = 0;
	bpf_loop(n, aio_request, &s, 0);
	filter(s); /* the call itself */
	report_wanted(s, 0, 0);
	if (s->foreign && n > 1) { /* others may have been among them */
		struct session *own = session(s->session);

		if (own)
			own->passed |= CAME_UNSEEN;
	}
	return s->foreign ? report_foreign(s, s->foreign) : 0;
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
	s->arg[0] = object_of(s->arg[4]); /* a BPF map's memory is its content */
	s->how = mix(s->how, s->arg[0]);
	return report_file(s, f);
}

#endif
