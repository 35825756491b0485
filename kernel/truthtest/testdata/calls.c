#define _GNU_SOURCE
/* Every system call that the observer without eBPF is notified of, each once and with a name of its own. */
#include "nasty.h"
#include <arpa/inet.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct sockaddr_in to(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return a;
}

static void opens(void)
{
	struct open_how how = {.flags = O_RDONLY};

	syscall(SYS_open, "by-open", O_RDONLY);
	syscall(SYS_openat, AT_FDCWD, "by-openat", O_RDONLY);
	syscall(SYS_openat2, AT_FDCWD, "by-openat2", &how, sizeof(how));
	must(syscall(SYS_creat, "file", 0600) >= 0, "creat");
}

static void changes(void)
{
	int here = open(".", O_PATH);

	must(!syscall(SYS_link, "file", "linked") && !syscall(SYS_linkat, here, "file", here, "linkedat", 0), "link");
	must(!syscall(SYS_symlink, "file", "soft") && !syscall(SYS_symlinkat, "file", here, "softat"), "symlink");
	must(!syscall(SYS_rename, "linked", "a") && !syscall(SYS_renameat, here, "a", here, "b") &&
		!syscall(SYS_renameat2, here, "b", here, "c", 0), "rename");
	must(!syscall(SYS_unlink, "c") && !syscall(SYS_unlinkat, here, "linkedat", 0), "unlink");
	must(!syscall(SYS_mkdir, "d", 0700) && !syscall(SYS_mkdirat, here, "e", 0700), "mkdir");
	must(!syscall(SYS_rmdir, "d") && !syscall(SYS_unlinkat, here, "e", AT_REMOVEDIR), "rmdir");
	must(!syscall(SYS_mknod, "pipe", S_IFIFO | 0600, 0) && !syscall(SYS_mknodat, here, "pipeat", S_IFIFO | 0600, 0),
		"mknod");
	must(!syscall(SYS_truncate, "file", 7), "truncate");
	must(!syscall(SYS_chmod, "file", 0640) && !syscall(SYS_fchmodat, here, "file", 0600), "chmod");
	must(!syscall(SYS_chown, "file", -1, -1) && !syscall(SYS_lchown, "soft", -1, -1) &&
		!syscall(SYS_fchownat, here, "softat", -1, -1, AT_SYMLINK_NOFOLLOW), "chown");
}

static void peers(void)
{
	int stream = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0),
		local = socket(AF_UNIX, SOCK_STREAM, 0), bound = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in any = to(0), peer[6];
	struct sockaddr_un name = {AF_UNIX, "none"};
	struct iovec byte = {"x", 1};
	struct msghdr one = {.msg_name = &peer[2], .msg_namelen = sizeof(peer[2]), .msg_iov = &byte, .msg_iovlen = 1},
		bare = {.msg_iov = &byte, .msg_iovlen = 1};
	struct mmsghdr two[2] = {{one, 0}, {one, 0}};

	for (int i = 0; i < 6; i++)
		peer[i] = to(40100 + i);
	two[0].msg_hdr.msg_name = &peer[3];
	two[1].msg_hdr.msg_name = &peer[4];
	connect(stream, (void *)&peer[0], sizeof(peer[0]));
	connect(local, (void *)&name, sizeof(name));
	must(!bind(bound, (void *)&any, sizeof(any)), "bind");
	must(sendto(datagram, "x", 1, 0, (void *)&peer[1], sizeof(peer[1])) == 1, "sendto");
	sendmsg(datagram, &one, 0);
	sendmmsg(datagram, two, 2, 0);
	/* Where the peer is known by a connect, a send tells nothing new. */
	connect(datagram, (void *)&peer[5], sizeof(peer[5]));
	send(datagram, "x", 1, 0);
	sendmsg(datagram, &bare, 0);
}

static void executes(void)
{
	char *none[] = {"none", 0}, *argv[] = {"by-execveat", 0}, *envp[] = {0};
	int fd = open("/bin/true", O_RDONLY);

	syscall(SYS_execve, "none", none, envp);
	if (!fork())
		syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
	wait(0);
}

void every_call(void)
{
	opens();
	changes();
	peers();
	executes();
	mount("none", "nowhere", "tmpfs", 0, 0);
	ptrace(PTRACE_ATTACH, 0x7ffffff0, 0, 0);
}
