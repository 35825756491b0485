/* Peers of several messages at once, and addresses that are none. */
#define _GNU_SOURCE
#include "nasty.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

static int unix_at(const char *name, struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	a->sun_family = AF_UNIX;
	strcpy(a->sun_path, name);
	must(!bind(fd, (void *)a, sizeof(*a)), name);
	return fd;
}

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};

	return a;
}

/* sendmmsg with a peer for each message, and one to the socket's own. */
void messages(void)
{
	static const char *names[] = {"first", "second-is-longer", "third", "second-is-longer"};
	struct iovec byte = {"x", 1};
	struct mmsghdr m[6] = {};
	struct sockaddr_un to[5] = {}, own = {};
	struct sockaddr_in in[4];
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), i;

	for (i = 0; i < 3; i++)
		unix_at(names[i], &to[i]);
	unix_at("own", &own);
	must(!connect(fd, (void *)&own, sizeof(own)), "connect");
	for (i = 0; i < 6; i++) {
		m[i].msg_hdr.msg_iov = &byte;
		m[i].msg_hdr.msg_iovlen = 1;
	}
	for (i = 0; i < 4; i++) { /* the name's NUL is not needed */
		to[i].sun_family = AF_UNIX;
		strcpy(to[i].sun_path, names[i]);
		m[i].msg_hdr.msg_name = &to[i];
		m[i].msg_hdr.msg_namelen = 2 + strlen(names[i]);
	}
	to[4].sun_family = AF_UNIX;
	strcpy(to[4].sun_path, "nobody");
	m[5].msg_hdr.msg_name = &to[4];
	m[5].msg_hdr.msg_namelen = sizeof(to[4]);
	must(sendmmsg(fd, m, 6, 0) == 5, "sendmmsg"); /* the last has no such peer */

	for (i = 0; i < 4; i++) {
		in[i] = loopback(9001 + i % 3);
		m[i].msg_hdr.msg_name = &in[i];
		m[i].msg_hdr.msg_namelen = sizeof(in[i]);
	}
	must(sendmmsg(udp, m, 4, 0) == 4, "sendmmsg");
}

/* Calls that fail in their arguments, disconnects, and what has no peer. */
void bad_addresses(void)
{
	struct sockaddr_in a = loopback(9009), zero = {.sin_family = AF_INET};
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0),
		un = socket(AF_UNIX, SOCK_DGRAM, 0);

	must(connect(udp, (void *)&a, 2) < 0 && errno == EINVAL, "short");
	must(connect(udp, (void *)8, sizeof(a)) < 0 && errno == EFAULT, "unreadable");
	must(connect(udp, (void *)&a, 1000) < 0 && errno == EINVAL, "long");
	must(sendto(udp, "x", 1, 0, (void *)&zero, sizeof(zero)) < 0 && errno == EINVAL, "port 0");
	must(bind(udp, (void *)&a, 3) < 0 && errno == EINVAL, "short bind");
	must(bind(udp, (void *)8, sizeof(a)) < 0 && errno == EFAULT, "unreadable bind");
	must(accept(tcp, 0, 0) < 0, "accept");
	must(sendto(un, "x", 1, 0, (void *)&none, 0) < 0, "no peer");
	must(!connect(udp, (void *)&a, sizeof(a)), "connect");
	must(!connect(udp, &none, sizeof(none)), "disconnect");
	must(!connect(udp, &none, sizeof(none)), "disconnect twice");
	must(sendto(udp, "x", 1, 0, 0, 0) < 0, "no peer any more");
	must(!connect(tcp, &none, sizeof(none)), "disconnect of TCP");
}
