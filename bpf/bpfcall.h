/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* bpf(2): which object a call was about. Whoever may call it can reach the
 * observer's own maps and links. */
#ifndef ASSAY_BPFCALL_H
#define ASSAY_BPFCALL_H
#include "report.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_map {
	u32 id;
};
struct bpf_link {
	u32 id;
};
struct bpf_prog_aux {
	u32 id;
};
enum bpf_prog_type { BPF_PROG_TYPE_UNSPEC };
struct bpf_prog {
	enum bpf_prog_type type;
	struct bpf_prog_aux *aux;
};
#pragma clang attribute pop

/* The type and id of the BPF object behind a descriptor, and whether it can be
 * changed through it, and of a program its own type; 0 where it is none. See enum object. */
__noinline u64 object_of(u32 fd)
{
	struct file *f = (void *)file_of(fd);
	struct dentry *d;
	void *object;
	char name[8] = {};
	u64 writable;

	if (!f)
		return 0;
	d = BPF_CORE_READ(f, f_path.dentry);
	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(d, d_name.name));
	if (name[0] != 'b' || name[1] != 'p' || name[2] != 'f')
		return 0;
	if (BPF_CORE_READ(d, d_sb, s_magic) != 0x09041934) /* ANON_INODE_FS_MAGIC: anybody may call a file so */
		return 0;
	object = BPF_CORE_READ(f, private_data);
	writable = BPF_CORE_READ(f, f_mode) & 2 ? 1ULL << 40 : 0; /* FMODE_WRITE */
	if (name[4] == 'm') {
		struct bpf_map *m = object;

		return writable | (u64)O_MAP << 32 | BPF_CORE_READ(m, id);
	}
	if (name[4] == 'l') {
		struct bpf_link *l = object;

		return writable | (u64)O_LINK << 32 | BPF_CORE_READ(l, id);
	}
	if (name[4] == 'p') {
		struct bpf_prog *p = object;

		return writable | (u64)BPF_CORE_READ(p, type) << 48 | (u64)O_PROG << 32 | BPF_CORE_READ(p, aux, id);
	}
	return 0;
}

/* Where in its attributes a command has the descriptor of what it changes; see
 * union bpf_attr. -1: it returns one, -2: it changes nothing. */
static __always_inline s32 object_at(u32 command)
{
	switch (command) {
	case 0: /* MAP_CREATE */
	case 5: /* PROG_LOAD */
	case 7: /* OBJ_GET */
	case 13: /* PROG_GET_FD_BY_ID */
	case 14: /* MAP_GET_FD_BY_ID */
	case 17: /* RAW_TRACEPOINT_OPEN */
	case 28: /* LINK_CREATE */
	case 30: /* LINK_GET_FD_BY_ID */
		return -1;
	case 2: /* MAP_UPDATE_ELEM */
	case 3: /* MAP_DELETE_ELEM */
	case 10: /* PROG_TEST_RUN */
	case 21: /* MAP_LOOKUP_AND_DELETE_ELEM */
	case 22: /* MAP_FREEZE */
	case 29: /* LINK_UPDATE */
	case 34: /* LINK_DETACH */
		return 0;
	case 8: /* PROG_ATTACH: the program, the first being what it is attached to */
	case 9: /* PROG_DETACH: the same, or none */
		return 4;
	case 25: /* MAP_LOOKUP_AND_DELETE_BATCH */
	case 26: /* MAP_UPDATE_BATCH */
	case 27: /* MAP_DELETE_BATCH */
		return 36;
	}
	return -2;
}

__noinline int on_bpf(struct scratch *s)
{
	s32 at;
	u32 fd;

	if (!s)
		return 0;
	at = object_at(s->arg[0]);
	fd = s->ret;
	if (s->ret >= 0 && at >= 0 && bpf_probe_read_user(&fd, sizeof(fd), (void *)s->arg[1] + at))
		s->bits |= B_FAILED_READ;
	s->arg[1] = s->ret >= 0 && at > -2 ? object_of(fd) : 0;
	s->arg[2] = 0;
	s->how = mix(s->how, s->arg[1]);
	return report_args(s);
}

#endif
