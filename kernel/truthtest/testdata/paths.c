/* Names: raced for, gone, too long, and seen from other roots. */
#define _GNU_SOURCE
#include "nasty.h"

#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

int touch(const char *name)
{
	int fd = open(name, O_CREAT | O_RDWR, 0600);

	must(fd >= 0, name);
	return fd;
}

/* A thread rewrites the name while the other opens it. */
static char racing[] = "race-a";
static volatile int over;

static void *rewrite(void *unused)
{
	while (!over)
		*(volatile char *)&racing[5] ^= 'a' ^ 'b';
	return 0;
}

void toctou(void)
{
	long count[2] = {0, 0}, want = 20000;
	struct stat a, b, st;
	pthread_t t;

	fstat(touch("race-a"), &a);
	fstat(touch("race-b"), &b);
	must(!pthread_create(&t, 0, rewrite, 0), "pthread_create");
	for (long n = 0; n < want || (n < 100 * want && (!count[0] || !count[1])); n++) {
		int fd = open(racing, O_RDONLY);

		must(fd >= 0, "racing");
		fstat(fd, &st);
		count[st.st_ino == b.st_ino]++;
		close(fd);
	}
	over = 1;
	pthread_join(t, 0);
	printf("%ld %ld\n", count[0], count[1]);
}

void deleted_cwd(void)
{
	must(!mkdir("gone", 0700) && !chdir("gone") && !rmdir("../gone"), "gone");
	open("file", O_CREAT | O_WRONLY, 0600);
	open(".", O_RDONLY);
	mkdir("dir", 0700);
	unlink("../over");
}

void deep(void)
{
	for (int i = 0; i < 300; i++)
		must(!mkdir("d", 0700) && !chdir("d"), "d");
	close(touch("leaf"));
	rename("leaf", "fruit");
	open("nothing", O_RDONLY);
	unlink("fruit");
	must(!execl("/bin/true", "true", NULL), "exec");
}

void longest(void)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = 0;
	for (int i = 0; i < 20; i++)
		must(!mkdir(name, 0700) && !chdir(name), "n");
	close(touch("leaf"));
	unlink("leaf");
}

void chrooted(void)
{
	int host = open(".", O_RDONLY | O_DIRECTORY);

	must(!mkdir("jail", 0700) && !mkdir("jail/in", 0700) && !chroot("jail") && !chdir("/in"), "jail");
	close(touch("../../../made"));
	open("/../../absent", O_RDONLY);
	rename("/../made", "/moved");
	open("../../../climbing", O_RDONLY);
	unlink("../../../climbed");
	close(openat(host, "outside", O_CREAT | O_WRONLY, 0600));
	unlinkat(host, "outside", 0);
}

/* The same file by other names: what was counted before must not count under
 * the old one. */
void renamed(void)
{
	must(!mkdir("a", 0700) && !mkdir("other", 0700), "mkdir");
	close(touch("a/f"));
	for (int i = 0; i < 3; i++)
		close(open("a/f", O_RDONLY));
	must(!rename("a", "b"), "rename");
	for (int i = 0; i < 3; i++)
		close(open("b/f", O_RDONLY));
	must(!syscall(SYS_renameat2, AT_FDCWD, "b", AT_FDCWD, "other", 2 /* RENAME_EXCHANGE */), "exchange");
	for (int i = 0; i < 3; i++)
		close(open("other/f", O_RDONLY));
	must(!rename("other/f", "other/g") && !link("other/g", "other/f"), "link");
	for (int i = 0; i < 3; i++) {
		close(open("other/f", O_RDONLY));
		close(open("other/g", O_RDONLY));
	}
	for (int i = 0; i < 3; i++) {
		unlink("other/f");
		close(touch("other/f"));
	}
}

/* openat2 with a root of its own, and files by handle. */
void rooted(void)
{
	struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT};
	struct file_handle *h = malloc(sizeof(*h) + MAX_HANDLE_SZ);
	int dir, id, here = open(".", O_RDONLY | O_DIRECTORY);

	must(!mkdir("root", 0700), "mkdir");
	close(touch("root/file"));
	dir = open("root", O_PATH | O_DIRECTORY);
	must(syscall(SYS_openat2, dir, "/file", &how, sizeof(how)) >= 0, "file");
	must(syscall(SYS_openat2, dir, "/none", &how, sizeof(how)) < 0, "none");
	must(syscall(SYS_openat2, dir, "../../up", &how, sizeof(how)) < 0, "up");
	h->handle_bytes = MAX_HANDLE_SZ;
	must(!name_to_handle_at(AT_FDCWD, "root/file", h, &id, 0), "name_to_handle_at");
	must(open_by_handle_at(here, h, O_RDONLY) >= 0, "open_by_handle_at");
}

/* Names below a descriptor of our own, as some runtimes write them. */
void below_fd(void)
{
	char a[64], b[64];
	int fd;

	must(!mkdir("below", 0700), "below");
	fd = open("below", O_RDONLY | O_DIRECTORY);
	close(touch("below/draft"));
	snprintf(a, sizeof(a), "/proc/self/fd/%d/draft", fd);
	snprintf(b, sizeof(b), "/proc/self/fd/%d/final", fd);
	must(!rename(a, b), "rename");
	must(rename(b, "/proc/self/fd/99999999999/x"), "no such number");
	must(rename("/proc/self/fd/777/x", b), "no such descriptor");
	snprintf(a, sizeof(a), "/proc/self/fd/%d/../outside", fd);
	must(!link(b, a) && !unlink(a), "outside");
	snprintf(a, sizeof(a), "/proc/self/fd/%d//final", fd);
	must(!unlink(a), "two slashes");
	snprintf(a, sizeof(a), "/proc/self/fd/%d", fd);
	must(unlink(a), "the descriptor itself");
	snprintf(a, sizeof(a), "/proc/self/fd/%d/none", fd);
	must(open(a, O_RDONLY) < 0, "none");
}

/* A mount that is nowhere any more, but still where we are. */
void detached(void)
{
	must(!unshare(CLONE_NEWNS) && !mount("none", "/", 0, MS_REC | MS_PRIVATE, 0), "unshare");
	must(!mkdir("top", 0700) && !mount("none", "top", "tmpfs", 0, 0), "mount");
	must(!chdir("top") && !mkdir("low", 0700) && !umount2("../top", MNT_DETACH), "umount");
	close(touch("low/file"));
	rename("low/file", "file");
	must(!chdir("low"), "low");
	open("../nothing", O_RDONLY);
	unlink("../file");
}


/* Changes of what links lead to, in another directory. */
void through_links(void)
{
	static const char *links[] = {"l-chmod", "l-fchmodat", "l-chown", "l-truncate", "l-utimensat", "l-utime",
		"l-setxattr", "l-linkat", "l-lchown", "l-link"};
	char to[64];

	must(!mkdir("inside", 0700) && !mkdir("outside", 0700), "mkdir");
	must(!mkdir("outside/d-mount", 0700) && !symlink("../outside/d-mount", "inside/l-mount"), "mount");
	for (unsigned i = 0; i < sizeof(links) / sizeof(*links); i++) {
		sprintf(to, "outside/%s", links[i] + 2);
		close(touch(to));
		sprintf(to, "inside/%s", links[i]);
		must(!chdir("inside"), "inside");
		sprintf(to, "../outside/%s", links[i] + 2);
		must(!symlink(to, i & 1 ? "second" : links[i]), "symlink");
		if (i & 1) { /* a link to a link */
			must(!symlink("second", links[i]), "symlink");
		}
		switch (i) {
		case 0:
			must(!syscall(SYS_chmod, links[i], 0666), links[i]);
			break;
		case 1:
			must(!syscall(SYS_fchmodat, AT_FDCWD, links[i], 0666), links[i]);
			break;
		case 2:
			must(!syscall(SYS_chown, links[i], -1, -1), links[i]);
			break;
		case 3:
			must(!syscall(SYS_truncate, links[i], 10), links[i]);
			break;
		case 4:
			must(!syscall(SYS_utimensat, AT_FDCWD, links[i], 0, 0), links[i]);
			break;
		case 5:
			must(!syscall(SYS_utime, links[i], 0), links[i]);
			break;
		case 6:
			must(!syscall(SYS_setxattr, links[i], "user.x", "v", 1, 0) || errno == EOPNOTSUPP, links[i]);
			break;
		case 7:
			must(!syscall(SYS_linkat, AT_FDCWD, links[i], AT_FDCWD, "hard", AT_SYMLINK_FOLLOW), links[i]);
			break;
		case 8: /* the link itself */
			must(!syscall(SYS_fchownat, AT_FDCWD, links[i], -1, -1, AT_SYMLINK_NOFOLLOW), links[i]);
			break;
		case 9:
			must(!syscall(SYS_link, links[i], "hard-link"), links[i]);
			break;
		}
		unlink("second");
		must(!chdir(".."), "..");
	}
	sprintf(to, "/proc/self/fd/%d", touch("outside/magic"));
	must(!chmod(to, 0666), to);
	if (mount("outside", "inside/l-mount", 0, MS_BIND, 0)) {
		must(errno == EPERM, "mount");
		return;
	}
	must(!umount("inside/l-mount"), "umount");
}
