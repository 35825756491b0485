/* Files and a connection through io_uring, by system calls alone. */
#define _GNU_SOURCE
#include "nasty.h"

#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static struct io_uring_params params;
static struct io_uring_sqe *sqes;
static unsigned *sq_tail, *sq_mask, *sq_array, *sq_flags, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_cqe *cqes;
static int ring;

static void start(unsigned flags)
{
	char *rings;

	params.flags = flags;
	params.sq_thread_idle = 1000;
	ring = syscall(SYS_io_uring_setup, 8, &params);
	must(ring >= 0, "io_uring_setup");
	must(params.features & IORING_FEAT_SINGLE_MMAP, "one mapping");
	rings = mmap(0, params.sq_off.array + params.cq_off.cqes + 65536, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	sqes = mmap(0, 8 * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	must(rings != MAP_FAILED && sqes != MAP_FAILED, "mmap");
	sq_tail = (void *)(rings + params.sq_off.tail);
	sq_mask = (void *)(rings + params.sq_off.ring_mask);
	sq_array = (void *)(rings + params.sq_off.array);
	sq_flags = (void *)(rings + params.sq_off.flags);
	cq_head = (void *)(rings + params.cq_off.head);
	cq_tail = (void *)(rings + params.cq_off.tail);
	cq_mask = (void *)(rings + params.cq_off.ring_mask);
	cqes = (void *)(rings + params.cq_off.cqes);
}

/* Submits one request and returns its result. */
static int submit(unsigned op, int fd, const void *addr, unsigned len, unsigned long off, unsigned flags)
{
	unsigned tail = *sq_tail, i = tail & *sq_mask, wake = 0;
	struct io_uring_sqe *e = &sqes[i];
	int res;

	memset(e, 0, sizeof(*e));
	e->opcode = op;
	e->fd = fd;
	e->addr = (unsigned long)addr;
	e->len = len;
	e->off = off;
	e->open_flags = flags;
	sq_array[i] = i;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_SEQ_CST);
	if (params.flags & IORING_SETUP_SQPOLL && __atomic_load_n(sq_flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		wake = IORING_ENTER_SQ_WAKEUP;
	must(syscall(SYS_io_uring_enter, ring, params.flags & IORING_SETUP_SQPOLL ? 0 : 1, 1, IORING_ENTER_GETEVENTS | wake, 0, 0) >= 0, "io_uring_enter");
	must(__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) != *cq_head, "completion");
	res = cqes[*cq_head & *cq_mask].res;
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	return res;
}

void uring(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd;

	start(0);
	fd = submit(IORING_OP_OPENAT, AT_FDCWD, "uring-file", 0600, 0, O_CREAT | O_RDWR);
	must(fd >= 0, "openat");
	must(submit(IORING_OP_MKDIRAT, AT_FDCWD, "uring-dir", 0700, 0, 0) == 0, "mkdirat");
	fd = open("uring-dir", O_RDONLY | O_DIRECTORY);
	must(submit(IORING_OP_RENAMEAT, AT_FDCWD, "uring-file", fd, (unsigned long)"new", 0) == 0, "renameat");
	must(submit(IORING_OP_UNLINKAT, fd, "new", 0, 0, 0) == 0, "unlinkat");
	must(submit(IORING_OP_CONNECT, socket(AF_INET, SOCK_STREAM, 0), &to, 0, sizeof(to), 0) == -ECONNREFUSED, "connect");
	must(submit(56 /* IORING_OP_BIND */, socket(AF_INET, SOCK_STREAM, 0), &to, 0, sizeof(to), 0) == 0, "bind");
	/* The thread's own calls afterwards are its own. */
	must(connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&to, sizeof(to)) < 0, "refused");
}

/* The directory of a file that is opened over and over changes its name. */
void uring_renamed(void)
{
	start(0);
	must(!mkdir("a", 0700), "mkdir");
	close(touch("a/f"));
	for (int i = 0; i < 3; i++)
		close(open("a/f", O_RDONLY));
	must(submit(IORING_OP_RENAMEAT, AT_FDCWD, "a", AT_FDCWD, (unsigned long)"b", 0) == 0, "renameat");
	for (int i = 0; i < 3; i++)
		close(open("b/f", O_RDONLY));
}

void sqpoll(void)
{
	start(IORING_SETUP_SQPOLL);
	must(submit(IORING_OP_OPENAT, AT_FDCWD, "polled-file", 0600, 0, O_CREAT | O_RDWR) >= 0, "openat");
}
