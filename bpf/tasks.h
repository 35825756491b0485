/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Calls on another process, and which process that is in the first pid namespace. */
#ifndef ASSAY_TASKS_H
#define ASSAY_TASKS_H
#include "socket.h"

#define F_SETOWN 8
#define F_SETSIG 10
#define F_SETOWN_EX 15
#define FIOSETOWN 0x8901
#define SIOCSPGRP 0x8902

/* The process that the caller means by a number. The kernel keeps those of each pid namespace
 * in a tree of 64 branches: see xas_load in lib/xarray.c. */
__noinline u32 process_numbered(u32 nr)
{
	struct pid *own = BPF_CORE_READ(bpf_get_current_task_btf(), thread_pid);
	u32 level = BPF_CORE_READ(own, level) & 31, i, shift = 32;
	struct upid *in = (void *)own + bpf_core_field_offset(struct pid, numbers) +
		level * bpf_core_type_size(struct upid);
	struct pid_namespace *ns = BPF_CORE_READ(in, ns);
	u64 entry = (u64)BPF_CORE_READ(ns, idr.idr_rt.xa_head);

#pragma clang loop unroll(disable)
	for (i = 0; i < 6 && entry > 4096 && (entry & 3) == 2; i++) {
		struct xa_node *node = (void *)(entry - 2);
		u32 below = BPF_CORE_READ(node, shift) & 31;

		if (!i && (u64)nr >> below > 63) /* more than there are */
			return 0;
		shift = below;
		entry = 0;
		bpf_probe_read_kernel(&entry, sizeof(entry),
			(void *)node + bpf_core_field_offset(struct xa_node, slots) + (nr >> shift & 63) * 8);
	}
	return !shift && entry && !(entry & 3) ? process_with(entry, 0) : 0;
}

/* The process that a descriptor made by pidfd_open is of. */
__noinline u32 process_behind(u64 file)
{
	struct file *f = (void *)file;

	if (!f)
		return 0;
	if (BPF_CORE_READ(f, f_inode, i_sb, s_magic) == 0x50494446) /* PID_FS_MAGIC, since Linux 6.9 */
		return process_with((u64)BPF_CORE_READ(f, f_inode, i_private), 0);
	return process_with((u64)BPF_CORE_READ(f, private_data), 0);
}

/* A descriptor that pidfd_getfd took from a process. */
static __always_inline void on_taken(struct scratch *s, u64 file)
{
	struct session *own = session(s->session);

	if (!own)
		return;
	if (carries(file))
		own->passed |= CAME_UNSEEN;
	else if (type_of(file) == 0140000 && !made_here(s->session, (u64)sock_in(file)))
		own->passed |= CAME_FROM_OUTSIDE;
}

/* Calls on a process. Those that change only the caller, or nothing, are left out. */
__noinline int on_process(struct scratch *s)
{
	u32 own = bpf_get_current_task_btf()->tgid;

	if (!s)
		return 0;
	if (row(s)->dfd != NOARG) {
		s->about = s->ret < 0 ? 0 : process_behind(file_of(arg(s, row(s)->dfd)));
		if (s->kind == K_PTRACE && s->ret >= 0)
			on_taken(s, file_of(s->ret));
		return report_args(s);
	}
	if (row(s)->path != NOARG && !arg(s, row(s)->path))
		return filter(s);
	if (s->kind == K_PRIVILEGED && row(s)->fd == 1 && (u32)s->arg[0] != row(s)->follow) /* a group, or a user's */
		return report_args(s);
	if (arg(s, row(s)->fd))
		s->about = process_numbered(arg(s, row(s)->fd));
	else
		s->about = own;
	if (s->about == own && s->kind == K_PRIVILEGED)
		return filter(s);
	if (row(s)->path != NOARG && s->ret >= 0) /* prlimit64 */
		note_limit(s->about, s->arg[1]);
	return report_args(s);
}

/* F_SETOWN and the like: which process gets a signal when something happens to a file. */
__noinline int on_owner(struct scratch *s)
{
	struct file___owner *now;
	struct file___owned *before;
	struct fown_struct *owner;
	struct session *own;
	u64 file;

	if (!s)
		return 0;
	file = file_of(s->arg[0]);
	now = (void *)file;
	before = (void *)file;
	if ((u32)s->arg[1] != F_SETOWN && (u32)s->arg[1] != F_SETSIG)
		s->arg[2] = 0; /* where it is in memory */
	if (s->ret < 0 || !file || (u32)s->arg[1] == F_SETSIG)
		return report_args(s);
	if (!bpf_core_field_exists(before->f_owner.pid))
		owner = BPF_CORE_READ(now, f_owner);
	else
		owner = (void *)before + bpf_core_field_offset(before->f_owner);
	s->about = process_with((u64)BPF_CORE_READ(owner, pid), BPF_CORE_READ(owner, pid_type));
	s->how = mix(s->how, s->about);
	own = session(s->session);
	if (own && s->about != bpf_get_current_task_btf()->tgid)
		own->asked = 1;
	return report_args(s);
}

#endif
