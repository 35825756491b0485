/* Files and a connection through io_uring, by system calls alone. */
#define _GNU_SOURCE
#include "nasty.h"

#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct io_uring_params params;
static struct io_uring_sqe *sqes;
static unsigned *sq_tail, *sq_mask, *sq_array, *sq_flags, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_cqe *cqes;
static int ring;
static int splice_in; /* of a request to splice */

static void start(unsigned flags)
{
	char *rings;

	params.flags = flags;
	params.sq_thread_idle = 1000;
	ring = syscall(SYS_io_uring_setup, 8, &params);
	must(ring >= 0, "io_uring_setup");
	must(params.features & IORING_FEAT_SINGLE_MMAP, "one mapping");
	rings = mmap(0, params.sq_off.array + params.cq_off.cqes + 65536, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		IORING_OFF_SQ_RING);
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
	if (op == IORING_OP_SPLICE)
		e->splice_fd_in = splice_in;
	sq_array[i] = i;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_SEQ_CST);
	if (params.flags & IORING_SETUP_SQPOLL && __atomic_load_n(sq_flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		wake = IORING_ENTER_SQ_WAKEUP;
	must(syscall(SYS_io_uring_enter, ring, params.flags & IORING_SETUP_SQPOLL ? 0 : 1, 1,
		IORING_ENTER_GETEVENTS | wake, 0, 0) >= 0, "io_uring_enter");
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
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd;

	start(IORING_SETUP_SQPOLL);
	must(submit(IORING_OP_OPENAT, AT_FDCWD, "polled-file", 0600, 0, O_CREAT | O_RDWR) >= 0, "openat");
	must(submit(IORING_OP_MKDIRAT, AT_FDCWD, "polled-dir", 0700, 0, 0) == 0, "mkdirat");
	must(submit(IORING_OP_LINKAT, AT_FDCWD, "polled-file", AT_FDCWD, (unsigned long)"polled-dir/link", 0) == 0,
		"linkat");
	must(submit(IORING_OP_RENAMEAT, AT_FDCWD, "polled-file", AT_FDCWD, (unsigned long)"polled-dir/new", 0) == 0,
		"renameat");
	must(submit(IORING_OP_UNLINKAT, AT_FDCWD, "polled-dir/link", 0, 0, 0) == 0, "unlinkat");
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	must(submit(IORING_OP_CONNECT, fd, &to, 0, sizeof(to), 0) == 0, "connect");
	must(submit(IORING_OP_SEND, fd, "x", 1, 0, 0) == 1, "send");
}

/* Puts a request into the queue. More are submitted together: see flush. */
static unsigned queued;

static struct io_uring_sqe *queue(unsigned op, int fd, const void *addr, unsigned len, unsigned long off,
	unsigned flags, unsigned sqe_flags)
{
	unsigned tail = *sq_tail, i = tail & *sq_mask;
	struct io_uring_sqe *e = &sqes[i];

	memset(e, 0, sizeof(*e));
	e->opcode = op;
	e->fd = fd;
	e->addr = (unsigned long)addr;
	e->len = len;
	e->off = off;
	e->open_flags = flags;
	e->flags = sqe_flags;
	sq_array[i] = i;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_SEQ_CST);
	queued++;
	return e;
}

static void flush(unsigned wait)
{
	must(syscall(SYS_io_uring_enter, ring, queued, wait, IORING_ENTER_GETEVENTS, 0, 0) >= 0, "io_uring_enter");
	queued = 0;
}

static int result(void)
{
	int res;

	while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
		must(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) >= 0, "wait");
	res = cqes[*cq_head & *cq_mask].res;
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	return res;
}

/* One after the other, because they are linked: the second fails, so that the
 * third is never carried out. */
void uring_linked(void)
{
	start(0);
	queue(IORING_OP_MKDIRAT, AT_FDCWD, "linked", 0700, 0, 0, IOSQE_IO_LINK);
	queue(IORING_OP_OPENAT, AT_FDCWD, "absent", 0, 0, O_RDONLY, IOSQE_IO_LINK);
	queue(IORING_OP_MKDIRAT, AT_FDCWD, "never", 0700, 0, 0, 0);
	flush(3);
	must(result() == 0 && result() == -ENOENT && result() == -ECANCELED, "linked");
	/* By a worker. */
	queue(IORING_OP_SYMLINKAT, AT_FDCWD, "linked", 0, (unsigned long)"by-worker", 0, IOSQE_ASYNC);
	sqes[(*sq_tail - 1) & *sq_mask].addr2 = (unsigned long)"by-worker";
	flush(1);
	must(result() == 0, "symlinkat");
	queue(IORING_OP_LINKAT, AT_FDCWD, "none", 0, 0, 0, 0);
	sqes[(*sq_tail - 1) & *sq_mask].len = AT_FDCWD;
	sqes[(*sq_tail - 1) & *sq_mask].addr2 = (unsigned long)"by-worker/new";
	flush(1);
	must(result() == -ENOENT, "linkat");
}

/* A file that the ring knows by a number of its own. */
void uring_registered(void)
{
	int files[2] = {-1, -1}, fd = touch("registered");
	struct io_uring_sqe *e;

	start(0);
	files[0] = fd;
	must(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, files, 2), "register");
	queue(IORING_OP_WRITE, 0, "hello", 5, 0, 0, IOSQE_FIXED_FILE);
	flush(1);
	must(result() == 5, "write");
	e = queue(IORING_OP_OPENAT, AT_FDCWD, "direct", 0600, 0, O_CREAT | O_RDWR, 0);
	e->file_index = 2;
	flush(1);
	must(result() == 0, "openat");
	queue(IORING_OP_WRITE, 1, "hello", 5, 0, 0, IOSQE_FIXED_FILE);
	flush(1);
	must(result() == 5, "write");
	queue(IORING_OP_FALLOCATE, 1, (void *)4096, 0, 0, 0, IOSQE_FIXED_FILE);
	flush(1);
	must(result() == 0, "fallocate");
}

/* Success that nothing tells of, and failure that something does. */
void uring_quiet(void)
{
	int fd = touch("quiet");
	struct stat st;

	start(0);
	queue(IORING_OP_MKDIRAT, AT_FDCWD, "silent", 0700, 0, 0, IOSQE_CQE_SKIP_SUCCESS);
	queue(IORING_OP_WRITE, fd, "hello", 5, 0, 0, IOSQE_CQE_SKIP_SUCCESS);
	queue(IORING_OP_OPENAT, AT_FDCWD, "absent", 0, 0, O_RDONLY, IOSQE_CQE_SKIP_SUCCESS);
	flush(1);
	must(result() == -ENOENT, "openat");
	for (int i = 0; i < 1000 && stat("silent", &st); i++)
		usleep(1000);
	must(!stat("silent", &st), "mkdirat");
}

/* One request that accepts three times. */
void uring_accept(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0), c[3];
	struct io_uring_sqe *e;

	start(0);
	must(!bind(fd, (void *)&at, len) && !listen(fd, 8) && !getsockname(fd, (void *)&at, &len), "listen");
	e = queue(IORING_OP_ACCEPT, fd, 0, 0, 0, 0, 0);
	e->ioprio = IORING_ACCEPT_MULTISHOT;
	flush(0);
	for (int i = 0; i < 3; i++) {
		c[i] = socket(AF_INET, SOCK_STREAM, 0);
		must(!connect(c[i], (void *)&at, len), "connect");
		must(result() >= 0, "accept");
	}
}

/* Operations that touch nothing. */
void uring_harmless(void)
{
	struct epoll_event readable = {.events = EPOLLIN};
	struct __kernel_timespec soon = {.tv_nsec = 1000};
	struct io_uring_sqe *e;
	unsigned word = 0;

	start(0);
	must(submit(IORING_OP_NOP, -1, 0, 0, 0, 0) == 0, "nop");
	must(submit(IORING_OP_POLL_ADD, 1, 0, 0, 0, 4 /* POLLOUT */) >= 0, "poll");
	must(submit(IORING_OP_EPOLL_CTL, epoll_create1(0), &readable, EPOLL_CTL_ADD, epoll_create1(0), 0) == 0,
		"epoll_ctl");
	must(submit(IORING_OP_TIMEOUT, -1, &soon, 1, 0, 0) == -ETIME, "timeout");
	e = queue(52 /* IORING_OP_FUTEX_WAKE */, 2 /* FUTEX2_SIZE_U32 */, &word, 0, 1, 0, 0);
	e->addr3 = ~0U;
	flush(1);
	must(result() == 0, "futex_wake");
}

void uring_datagram(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un none = {.sun_family = AF_UNIX, .sun_path = "no-such-socket"};
	struct iovec v = {"x", 1};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &v, .msg_iovlen = 1};

	start(0);
	must(submit(IORING_OP_SENDMSG, socket(AF_INET, SOCK_DGRAM, 0), &m, 1, 0, 0) == 1, "sendmsg");
	must(submit(IORING_OP_CONNECT, socket(AF_UNIX, SOCK_STREAM, 0), &none, 0, sizeof(none), 0) == -ENOENT, "connect");
	queue(IORING_OP_CONNECT, socket(AF_INET, SOCK_STREAM, 0), &to, 0, sizeof(to), 0, IOSQE_ASYNC);
	flush(1);
	must(result() == -ECONNREFUSED, "connect by a worker");
}

/* A datagram with a route of its own, and a question to netlink. */
void uring_control(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct iovec v = {"x", 1};
	struct {
		struct cmsghdr is;
		unsigned char route[8];
	} route = {{sizeof(route), IPPROTO_IP, 7 /* IP_RETOPTS */}, {0x83, 7, 4, 127, 0, 0, 1, 0}};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &v, .msg_iovlen = 1,
		.msg_control = &route, .msg_controllen = sizeof(route)};
	struct {
		unsigned len;
		unsigned short type, flags;
		unsigned seq, pid, family;
	} question = {20, 18 /* RTM_GETLINK */, 0x301 /* NLM_F_REQUEST, NLM_F_DUMP */, 1, 0, 0};

	start(0);
	must(submit(IORING_OP_SENDMSG, socket(AF_INET, SOCK_DGRAM, 0), &m, 1, 0, 0) == 1, "sendmsg");
	must(submit(IORING_OP_SEND, socket(AF_NETLINK, SOCK_RAW, 0), &question, sizeof(question), 0, 0) ==
		sizeof(question), "send");
}

/* Descriptors 3 to 7, sockets that others made: read, received from, written by a fixed place of the ring's own
 * table, received from without a report, and spliced from. */
void uring_inherited(void)
{
	static char byte[1];
	int own[1] = {5}, ends[2];

	start(0);
	must(submit(IORING_OP_READ, 3, byte, 1, 0, 0) == 1, "read");
	must(submit(IORING_OP_RECV, 4, byte, 1, 0, 0) == 1, "recv");
	must(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, own, 1), "register");
	close(5);
	queue(IORING_OP_SEND, 0, "x", 1, 0, 0, IOSQE_FIXED_FILE);
	flush(1);
	must(result() == 1, "send");
	queue(IORING_OP_RECV, 6, byte, 1, 0, 0, IOSQE_CQE_SKIP_SUCCESS);
	flush(0);
	must(!pipe(ends), "pipe");
	splice_in = 7;
	must(submit(IORING_OP_SPLICE, ends[1], (void *)-1L, 1, -1, 0) == 1, "splice");
}

/* A message to a ring. */
void uring_command(void)
{
	start(0);
	must(submit(40 /* IORING_OP_MSG_RING */, ring, 0, 0, 7, 0) >= 0, "message");
}

/* Sockets whose peers no hook sees, and ordinary ones. */
void uring_socket(void)
{
	start(0);
	must(submit(45 /* IORING_OP_SOCKET */, AF_PACKET, 0, 0x300, SOCK_RAW, 0) >= 0, "packet socket");
	must(submit(45, AF_INET, 0, 0, SOCK_RAW, 0) == -EPROTONOSUPPORT, "raw socket without a protocol");
	must(submit(45, AF_INET, 0, 0, SOCK_STREAM, 0) >= 0, "stream socket");
	must(submit(45, AF_UNIX, 0, 0, SOCK_DGRAM, 0) >= 0, "unix socket");
	queue(45, AF_PACKET, 0, 0, SOCK_DGRAM, 0, IOSQE_CQE_SKIP_SUCCESS);
	flush(0);
}

/* Receives a socket behind another control message, over the socket that is its input, and writes to it. */
void uring_received(void)
{
	union {
		struct cmsghdr align;
		char bytes[256];
	} control = {};
	static char byte[1];
	struct iovec v = {byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int on = 1, fd = -1;

	start(0);
	must(!setsockopt(0, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), "SO_PASSCRED");
	must(submit(IORING_OP_RECVMSG, 0, &m, 1, 0, 0) == 1, "recvmsg");
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	must(write(fd, "x", 1) == 1, "write");
}
