/* Arguments that stand in structures, which another changes while the kernel reads them. */
#define _GNU_SOURCE
#include "nasty.h"

#include <linux/openat2.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>


static struct open_how how;
static struct clone_args args;
static volatile int over;

static void *flip_how(void *unused)
{
	for (unsigned n = 0; !over; n++)
		*(volatile __u64 *)&how.flags = n >> 8 & 1 ? O_WRONLY : O_RDONLY;
	return 0;
}

/* Opens whose access mode another thread changes all the time. Says which files could be
 * written. */
void flipped_modes(void)
{
	pthread_t t;

	must(!pthread_create(&t, 0, flip_how, 0), "pthread_create");
	for (int i = 0; i < each; i++) {
		char name[16];
		int fd;

		sprintf(name, "f-%d", i);
		close(touch(name));
		fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof(how));
		must(fd >= 0, "openat2");
		if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
			printf("%s\n", name);
		close(fd);
	}
	over = 1;
	pthread_join(t, 0);
}

static void *flip_args(void *unused)
{
	for (unsigned n = 0; !over; n++)
		*(volatile __u64 *)&args.flags = n >> 8 & 1 ? CLONE_NEWUTS : CLONE_NEWIPC;
	return 0;
}

/* The same of the namespaces of a child. Says which had their own host name. */
void flipped_namespaces(void)
{
	struct stat own, childs;
	int status;
	pthread_t t;

	must(!stat("/proc/self/ns/uts", &own), "stat");
	args.exit_signal = SIGCHLD;
	args.flags = CLONE_NEWUTS;
	must(!pthread_create(&t, 0, flip_args, 0), "pthread_create");
	for (int i = 0; i < each; i++) {
		int pid = syscall(SYS_clone3, &args, sizeof(args));

		must(pid >= 0, "clone3");
		if (!pid)
			_exit(!stat("/proc/self/ns/uts", &childs) && childs.st_ino != own.st_ino);
		must(wait(&status) == pid, "wait");
		if (WEXITSTATUS(status))
			printf("%d\n", pid);
	}
	over = 1;
	pthread_join(t, 0);
}

/* What the kernel did not read, or not in full, and a file that has a name left. */
void odd_arguments(void)
{
	static char longest[5000];
	int fd;

	close(touch("f"));
	how.flags = O_WRONLY;
	must(syscall(SYS_openat2, AT_FDCWD, "f", &how, 8) < 0 && errno == EINVAL, "openat2");
	for (unsigned i = 0; i < sizeof(longest) - 1; i++)
		longest[i] = i % 10 == 9 ? '/' : 'x';
	must(mkdir(longest, 0700) < 0 && errno == ENAMETOOLONG, "mkdir");
	fd = touch("one");
	must(!link("one", "two") && !unlink("one") && !fchmod(fd, 0601), "fchmod");
	must(!unlink("two") && !fchmod(fd, 0602), "fchmod");
}

/* Receives a descriptor behind another control message. */
void second_control(void)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} u = {};
	struct iovec v = {"x", 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof(u)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	struct ucred me = {getpid(), getuid(), getgid()};
	int pair[2], fd = 0;

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	*c = (struct cmsghdr){CMSG_LEN(sizeof(me)), SOL_SOCKET, SCM_CREDENTIALS};
	memcpy(CMSG_DATA(c), &me, sizeof(me));
	c = CMSG_NXTHDR(&m, c);
	*c = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	must(sendmsg(pair[0], &m, 0) == 1, "sendmsg");
}
