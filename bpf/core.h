/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The parts of the kernel's types that the programs read. Field offsets are
 * relocated at load time against the running kernel's BTF (CO-RE), so only
 * names and types matter here, not layout. */
#ifndef ASSAY_CORE_H
#define ASSAY_CORE_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;

typedef __u8 u8;
typedef __s8 s8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_CGROUP_STORAGE = 19,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority;
	__u32 src_ip4, src_ip6[4], src_port;
	__be16 dst_port;
	__u16 : 16;
	__u32 dst_ip4, dst_ip6[4], state;
	__s32 rx_queue_mapping;
};

struct bpf_sock_addr {
	__u32 user_family, user_ip4, user_ip6[4], user_port, family, type, protocol, msg_src_ip4, msg_src_ip6[4];
	union {
		struct bpf_sock *sk;
		__u64 : 64;
	} __attribute__((aligned(8)));
};

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex,
		ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4,
		remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	union {
		void *flow_keys;
		__u64 : 64;
	} __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len, gso_segs;
	union {
		struct bpf_sock *sk;
		__u64 : 64;
	} __attribute__((aligned(8)));
	__u32 gso_size;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct timespec64 {
	s64 tv_sec;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
	int hierarchy_id; /* 0 is cgroup2 */
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_root *root;
	struct cgroup *ancestors[0];
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy {
	struct uts_namespace *uts_ns;
	struct ipc_namespace *ipc_ns;
	struct mnt_namespace *mnt_ns;
	struct pid_namespace *pid_ns_for_children;
	struct net *net_ns;
	struct time_namespace *time_ns_for_children;
	struct cgroup_namespace *cgroup_ns;
};

struct capabilities {
	u32 low; /* of 64 bits since Linux 6.3, the first of two words before */
};

struct user_namespace {
	int level;
};

struct net {
	struct user_namespace *user_ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct cred {
	struct capabilities cap_effective;
	struct user_namespace *user_ns;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct qstr {
	union {
		struct {
			u32 hash;
			u32 len;
		};
		u64 hash_len;
	};
	const unsigned char *name;
};

struct file_system_type {
	int fs_flags;
};

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	unsigned long s_magic;
	void *s_fs_info;
};

typedef struct {
	int counter;
} atomic_t;

struct inode {
	u16 i_mode;
	unsigned int i_nlink;
	u32 i_rdev;
	atomic_t i_writecount; /* how many have it open to write, less than 0 when nobody may */
	unsigned long i_ino;
	struct super_block *i_sb;
	u32 i_generation;
	void *i_private;
	const char *i_link; /* a symbolic link's content, where it is at hand */
};

struct list_head {
	struct list_head *next;
};

struct swait_queue_head {
	struct list_head task_list;
};

struct swait_queue {
	struct task_struct *task;
	struct list_head task_list;
};

struct completion {
	struct swait_queue_head wait;
};

struct work_struct {
	struct list_head entry;
};

/* A program that the kernel is to start, include/linux/umh.h. */
struct subprocess_info {
	struct work_struct work;
	struct completion *complete; /* what whoever asked for it waits for */
	const char *path;
};

/* What a task of a workqueue is at. */
struct worker {
	struct work_struct *current_work;
};

struct kthread {
	void *data;
};

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
};

struct dentry {
	u32 d_flags;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
	struct list_head mnt_mounts, mnt_child;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
	unsigned int f_mode;
	unsigned int f_flags;
};

enum pid_type { PIDTYPE_PID };

struct fown_struct {
	struct pid *pid;
	enum pid_type pid_type;
};

struct file___owner { /* since Linux 6.12 */
	struct fown_struct *f_owner;
};

struct file___owned { /* before */
	struct fown_struct f_owner;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
};

struct fs_struct {
	int users;
	struct path root;
	struct path pwd;
};

struct mm_struct {
	unsigned long arg_start, arg_end, env_start, env_end;
	struct file *exe_file;
	atomic_t mm_users;
	struct core_state *core_state;
	unsigned long task_size;
	unsigned long saved_auxv[1];
};


struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct hlist_head tasks[4]; /* by enum pid_type */
	struct upid numbers[0];     /* of each level */
};

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr; /* of struct pid, by their numbers there */
	unsigned int level;
};


struct proc_dir_entry {
	void *data;
};

struct proc_inode {
	struct pid *pid;
	struct proc_dir_entry *pde;
	struct inode vfs_inode;
};

struct proc_fs_info {
	struct pid_namespace *pid_ns;
};

struct core_thread {
	struct task_struct *task;
};

struct core_state {
	struct core_thread dumper;
};

struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
	struct list_head thread_head;
	struct core_state *core_state; /* while a core dump is written; in mm_struct before Linux 5.16 */
};

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
};

struct thread_info {
	unsigned long flags;
	u32 status;
};

struct kernel_siginfo {
	int si_code;
};

struct task_struct {
	struct pid *thread_pid;
	struct hlist_node pid_links[4];
	u64 self_exec_id;
	struct thread_info thread_info;
	unsigned int flags;
	struct mm_struct *mm;
	void *worker_private; /* of a kernel thread: its struct kthread, before Linux 5.17 in set_child_tid */
	int *set_child_tid;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 start_boottime;
	struct fs_struct *fs;
	struct files_struct *files;
	struct nsproxy *nsproxy;
	const struct cred *real_cred;
	const struct cred *cred;
	struct signal_struct *signal;
	struct list_head thread_node;
	struct css_set *cgroups;
};

struct linux_binprm {
	struct file *file;
	const char *filename;
	const char *interp;
};

struct sockaddr_un_name {
	u16 sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un_name name[0];
};

struct in6_addr {
	u8 in6_u[16];
};

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	atomic64_t skc_cookie;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	u16 sk_type;
	u16 sk_protocol;
	int sk_err;
	struct pid *sk_peer_pid;
};

struct sk_buff {
	struct sock *sk;
	unsigned char *head;
	u32 tail; /* from head */
};

struct netlink_callback {
	struct sk_buff *skb; /* the request */
};

struct netlink_sock {
	struct netlink_callback cb;
	bool cb_running; /* an answer is given in parts */
	void *netlink_rcv; /* of the kernel's own sockets */
};

struct unix_sock {
	struct unix_address *addr;
	struct path path;
	struct sock *peer;
};

struct socket {
	short type;
	struct sock *sk;
};

struct io_ring_ctx;

struct io_cqe {
	u64 user_data;
	union {
		u32 flags;
		int fd;
	};
};

struct io_kiocb {
	u8 opcode;
	u32 flags;
	struct io_ring_ctx *ctx;
	struct io_cqe cqe;
	struct file *file;
};

struct io_uring_cqe {
	u64 user_data;
	s32 res;
	u32 flags;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp, bx, r10, r9, r8, cx, dx, si, di, orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long regs[31];
	unsigned long orig_x0;
	s32 syscallno;
};
#endif

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#endif
