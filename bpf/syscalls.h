/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls. One program sits on sys_exit, looks the number up in the table
 * that user space filled in, tests the scope and calls one of a few handlers.
 * Arguments come from the registers saved on entry, which the kernel keeps until
 * exit. */
#ifndef ASSAY_SYSCALLS_H
#define ASSAY_SYSCALLS_H
#include "bpfcall.h"
#include "files.h"
#include "model.h"
#include "sessions.h"
#include "socket.h"
#include "tasks.h"

#define SOCKETCALL 102
#define NEW_NAMESPACES 0x7E020080ULL /* the CLONE_NEW* flags */
#define CLONE_FLAGS 0x3ffffff80ULL /* that are modelled: all up to CLONE_INTO_CGROUP */

/* 32-bit programs have calls with their arguments in memory. Replaces such a call by the
 * one that it stands for. Returns 1 if that one is not observed, less than 0 if the
 * arguments could not be read. */
__noinline int unpack(struct scratch *s)
{
	u32 args[6] = {}, nr = 192 /* mmap2 */, n = 6;
	u64 from;

	if (!s)
		return -1;
	from = s->arg[0];
	if (s->nr == SOCKETCALL) { /* include/uapi/linux/net.h */
		from = s->arg[1];
		switch (s->arg[0]) {
		case 1:
			nr = 359, n = 3; /* socket */
			break;
		case 2:
			nr = 361, n = 3; /* bind */
			break;
		case 3:
			nr = 362, n = 3; /* connect */
			break;
		case 4:
			nr = 363, n = 2; /* listen */
			break;
		case 5:
			nr = 364, n = 3; /* accept */
			break;
		case 9:
			nr = 369, n = 4; /* send */
			break;
		case 10:
			nr = 371, n = 4; /* recv */
			break;
		case 11:
			nr = 369, n = 6; /* sendto */
			break;
		case 12:
			nr = 371, n = 6; /* recvfrom */
			break;
		case 14:
			nr = 366, n = 5; /* setsockopt */
			break;
		case 15:
			nr = 365, n = 5; /* getsockopt */
			break;
		case 16:
			nr = 370, n = 3; /* sendmsg */
			break;
		case 17:
			nr = 372, n = 3; /* recvmsg */
			break;
		case 18:
			nr = 364, n = 4; /* accept4 */
			break;
		case 20:
			nr = 345, n = 4; /* sendmmsg */
			break;
		default:
			return 1;
		}
	}
	if (bpf_probe_read_user(args, n * 4, (void *)from))
		return -1;
	s->nr = nr;
	s->sel = nr + s->is32 * NSYS;
#pragma unroll
	for (n = 0; n < 6; n++)
		s->arg[n] = args[n];
	return 0;
}

/* A clone is reported if it makes namespaces. Those that clone3 made are known from the child;
 * if it failed, those that it was asked for are read from the caller's memory. */
__noinline int on_clone(struct scratch *s)
{
	struct notes *kept;
	u64 flags, asked;

	if (!s)
		return 0;
	asked = flags = s->arg[0] & ~0xffULL; /* the exit signal */
	if (s->nr == CLONE3)
		bpf_probe_read_user(&asked, sizeof(asked), (void *)s->arg[0]);
	else
		asked = (u32)asked;
	if (s->nr == CLONE3 && s->ret > 0) {
		kept = bpf_task_storage_get(&notes, bpf_get_current_task_btf(), 0, 0);
		flags = kept ? kept->namespaces : 0;
	} else if (s->nr == CLONE3) {
		flags = 0;
		bpf_probe_read_user(&flags, sizeof(flags), (void *)s->arg[0]);
		if (flags & NEW_NAMESPACES)
			claim(s, s->arg[0], sizeof(flags));
	}
	if (s->ret > 0 && asked & ~CLONE_FLAGS)
		return report_operation(s, of_table(T_CLONE, asked & ~CLONE_FLAGS & ~(255ULL << 56)));
	if (s->ret == 0 /* the child's return */ || !(flags & NEW_NAMESPACES))
		return filter(s);
	s->arg[0] = s->how = flags;
	return report_args(s);
}

/* Reports what the kernel was asked for by what was sent, and control messages that are not modelled. */
__noinline int on_sent(struct scratch *s)
{
	struct sock *netlink;

	if (!s)
		return 0;
	netlink = netlink_of(file_of(s->arg[0]));
	report_control(s);
	if (!netlink)
		return 0;
	return report_wanted(s, (u64)netlink, s->ret < 0 ? 0 :
		row(s)->path == NOARG && row(s)->path2 == NOARG ? s->ret : 1); /* sendmmsg, or one message */
}

/* Reports the call in s to the session at hand. Calls may nest eight deep,
 * and the look-up of names needs all eight. */
__noinline int report_call(struct scratch *s)
{
	u32 prog, account;

	if (!s)
		return 0;
	prog = row(s)->prog;
	if (prog == P_PACKED) {
		int none = unpack(s);

		if (none) {
			if (enter(s))
				return 0;
			return none < 0 ? report_args(s) : filter(s);
		}
		prog = row(s)->prog;
	}
	if (prog == P_READ)
		return on_read(s);
	account = account_of(s->sel, s->arg[0], s->arg[1], s->arg[2]);
	if (account == A_OWN)
		return 0;
	if (account != A_RECORDED)
		return on_unmodelled(s);
	if (enter(s))
		return 0;
	switch (prog) {
	case P_OPEN:
		return on_open(s);
	case P_PATH:
		on_path(s);
		return row(s)->kind == K_MOUNT ? report_wanted(s, 0, 0) : 0;
	case P_FD:
		return on_fd(s);
	case P_CWD:
		return on_cwd(s);
	case P_WRITE:
		return on_write(s);
	case P_MMAP:
		return on_mmap(s);
	case P_AIO:
		return on_aio(s);
	case P_URING:
		return on_uring_enter(s);
	case P_SOCKET:
		on_socket(s);
		if (row(s)->kind == K_SENDTO && row(s)->path == NOARG && row(s)->path2 == NOARG && s->ret > 1) /* sendmmsg */
			bpf_loop(s->ret - 1, further_message, &s, 0);
		if (s->control.ways && note_rights(s, (u64)sock_of(s->arg[0])) & WENT_OUTSIDE)
			look_at_rights(s, PASSED_OUT, row(s)->path2 != NOARG);
		if (row(s)->kind != K_SENDTO)
			return 0;
		used(s, s->arg[0]);
		return on_sent(s);
	case P_CLONE:
		return on_clone(s);
	case P_IOCTL:
		return (u32)s->arg[1] == FIOSETOWN || (u32)s->arg[1] == SIOCSPGRP ? on_owner(s) : on_fd(s);
	case P_FAMILY:
		return ordinary(s->arg[0], s->arg[1], s->arg[2]) ? filter(s) : report_args(s);
	case P_BPF:
		return on_bpf(s);
	case P_RECEIVE:
		return on_receive(s);
	case P_PROCESS:
		return on_process(s);
	case P_FCNTL:
		return on_owner(s);
	case P_IPC:
		return row(s)->fd != NOARG ? on_fd(s) : report_args(s);
	}
	report_args(s); /* P_ARGS: the arguments say it all */
	return row(s)->kind == K_MOUNT ? report_wanted(s, 0, 0) : 0;
}

/* Whether a read of a descriptor may have waited for another task: regular files, directories and devices that keep
 * what they have do not. */
static __always_inline int may_wait(u32 fd)
{
	u64 file = file_of(fd);
	u32 type = file ? type_of(file) : 0100000;

	return type != 0100000 && type != 0040000 && type != 0060000;
}

/* Whether a command of fcntl waits for a lock: F_SETLKW, F_SETLKW64, F_OFD_SETLKW. */
static __always_inline int locks_and_waits(u32 command)
{
	return command == 7 || command == 14 || command == 38;
}

/* Whether a descriptor is a socket that the current task's sessions may not have made. */
static __always_inline int foreign_at(u32 fd)
{
	u64 file = file_of(fd);

	return file && type_of(file) == 0140000 && !made_beside(file);
}

/* Notes that a call may have waited, and returns whether it is of no further interest. Not in sys_exit, whose stack
 * must stay small: below it are the deepest chains of calls, and Linux allows 512 bytes for all of one. */
__noinline int only_waited(u32 prog, u32 fd, u32 waits)
{
	if (waits || (1 << P_WAIT | 1 << P_RECEIVE | 1 << P_URING | 1 << P_CLONE | 1 << P_IPC) >> (prog & 31) & 1)
		note_wait(bpf_get_current_task_btf());
	return prog == P_WAIT || (prog == P_READ ? !foreign_at(fd) : waits);
}

/* The table of calls is looked at before the scope: most calls end there. */
SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	volatile const struct syscall *d;
	struct task_struct *t = bpf_get_current_task_btf();
	struct scope *in;
	struct scratch *s;
	u32 is32 = 0, sel, i, waits = 0;
	u64 nr, first, second, third;

#if defined(__TARGET_ARCH_x86)
	nr = (u32)regs->orig_ax;
	is32 = t->thread_info.status >> 1 & 1; /* TS_COMPAT */
#else
	nr = (u32)regs->syscallno;
	is32 = t->thread_info.flags >> 22 & 1; /* TIF_32BIT */
#endif
	/* Those of x32 have a bit above all others. On arm64 the second table is empty. -1 ends a signal handler. */
	sel = nr < NSYS ? nr : NO_ROW;
	if ((u32)nr == ~0U)
		return 0;
	sel += is32 * NSYS;
	asm volatile("" : "+r"(sel)); /* or the compiler proves the mask away */
	d = &syscalls[sel & (2 * NSYS - 1)];
	if (d->prog == P_OWN || (d->prog == P_NONE && ret == -38 /* ENOSYS: the kernel has no such call */))
		return 0;
#if defined(__TARGET_ARCH_x86)
	first = is32 ? regs->bx : regs->di;
	second = is32 ? regs->cx : regs->si;
	third = regs->dx;
#else
	first = regs->orig_x0;
	second = regs->regs[1];
	third = regs->regs[2];
#endif
	if (d->prog == P_READ && !(waits = may_wait(first)))
		return 0;
	if (d->prog == P_FCNTL)
		waits = locks_and_waits(second);
	if (d->table && !waits && own_at_sight(d->table, first, second, third))
		return 0;
	in = scope_here();
	if (!in || !in->n)
		return 0;
	if (only_waited(d->prog, first, waits) && d->account != A_OPEN)
		return 0;
	if (d->table && account_of(sel, first, second, third) == A_OWN)
		return 0;
	s = scratch(CTX_SYSCALL);
	if (!s)
		return 0;
	s->nr = nr;
	s->is32 = is32;
	s->sel = sel;
	s->ret = ret;
	s->made = call_of(nr, is32);
	s->told = 0;
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
	s->here = *in; /* handlers look at other scopes, which can take its place */
	if (s->here.n > 1)
		s->call = (struct call){s->nr, s->ret, {s->arg[0], s->arg[1], s->arg[2], s->arg[3], s->arg[4], s->arg[5]}};
	for (i = 0; i < DEPTH && i < s->here.n; i++) {
		if (i) { /* handlers change what they get */
			s->nr = s->call.nr;
			s->sel = sel;
			s->ret = s->call.ret;
			__builtin_memcpy(s->arg, s->call.arg, sizeof(s->arg));
		}
		s->session = number(&s->here, i);
		report_call(s);
	}
	if (takes_names(d->prog))
		forget_notes(s);
	if (s->told)
		forget_wanted();
	return 0;
}

#endif
