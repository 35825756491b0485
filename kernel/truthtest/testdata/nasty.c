/* Programs that do one nasty thing each, named by the first argument, in the
 * working directory. They say on standard output what only they can know. */
#define _GNU_SOURCE
#include "nasty.h"

#include <linux/openat2.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int touch(const char *name)
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

static void toctou(void)
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

static void deleted_cwd(void)
{
	must(!mkdir("gone", 0700) && !chdir("gone") && !rmdir("../gone"), "gone");
	open("file", O_CREAT | O_WRONLY, 0600);
	open(".", O_RDONLY);
	mkdir("dir", 0700);
	unlink("../over");
}

static void deep(void)
{
	for (int i = 0; i < 300; i++)
		must(!mkdir("d", 0700) && !chdir("d"), "d");
	close(touch("leaf"));
	rename("leaf", "fruit");
	open("nothing", O_RDONLY);
	unlink("fruit");
	must(!execl("/bin/true", "true", NULL), "exec");
}

static void longest(void)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = 0;
	for (int i = 0; i < 20; i++)
		must(!mkdir(name, 0700) && !chdir(name), "n");
	close(touch("leaf"));
	unlink("leaf");
}

static void chrooted(void)
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

static void *exec_true(void *unused)
{
	execl("/bin/true", "by-thread", NULL);
	return 0;
}

static void thread_exec(void)
{
	pthread_t t;

	pthread_create(&t, 0, exec_true, 0);
	for (;;)
		pause();
}

static pthread_t leader;

static void *outlive(void *unused)
{
	pthread_join(leader, 0);
	close(touch("after-leader"));
	exit(7);
}

static void leader_exit(void)
{
	pthread_t t;

	if (fork()) {
		int st;

		wait(&st);
		must(WEXITSTATUS(st) == 7, "status");
		return;
	}
	leader = pthread_self();
	pthread_create(&t, 0, outlive, 0);
	pthread_exit(0);
}

static void copy_true(int to)
{
	char buf[65536];
	int from = open("/bin/true", O_RDONLY);
	ssize_t n;

	while ((n = read(from, buf, sizeof(buf))) > 0)
		must(write(to, buf, n) == n, "write");
	close(from);
}

static void memfd_exec(void)
{
	char *argv[] = {"in-memory", 0}, *envp[] = {0};
	int fd = memfd_create("secret", 0);

	copy_true(fd);
	fexecve(fd, argv, envp);
	must(0, "fexecve");
}

static void deleted_exec(void)
{
	char *argv[] = {"without-name", 0}, *envp[] = {0};
	int fd = open("prog", O_CREAT | O_RDWR, 0700), ro;

	copy_true(fd);
	ro = open("prog", O_RDONLY);
	close(fd);
	unlink("prog");
	fexecve(ro, argv, envp);
	must(0, "fexecve");
}

/* Opens of a FIFO that nobody reads: one that a signal ends, and one that
 * signals interrupt until a reader comes. */
static int signals;

static void on_alarm(int sig)
{
	if (++signals == 4)
		open("restarted", O_RDONLY | O_NONBLOCK);
}

static void interrupted(void)
{
	struct itimerval every = {{0, 5000}, {0, 5000}};
	struct sigaction sa = {.sa_handler = on_alarm};

	must(!mkfifo("ended", 0600) && !mkfifo("restarted", 0600), "mkfifo");
	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &every, 0);
	must(open("ended", O_WRONLY) < 0 && errno == EINTR, "ended");
	signals = 0;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &sa, 0);
	must(open("restarted", O_WRONLY) >= 0, "restarted");
}

/* One pid, again and again, in the pid namespace that we are in. */
static void pid_reuse(void)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t pid = fork();
	char name[32];
	int made = 0;

	if (!pid)
		_exit(0);
	wait(0);
	for (int i = 0; i < 10000 && made < 20; i++) {
		args.set_tid = (uintptr_t)&pid;
		args.set_tid_size = 1;
		long r = syscall(SYS_clone3, &args, sizeof(args));

		if (!r) {
			sprintf(name, "life-%d", made);
			close(touch(name));
			_exit(made);
		}
		must(r > 0 || errno == EEXIST, "clone3");
		if (r > 0) {
			made++;
			wait(0);
		}
	}
	must(made == 20, "the pid");
	printf("%d\n", pid);
}

static void exec_chain(char **argv)
{
	char left[16];
	int n = atoi(argv[2]);

	if (!n)
		return;
	sprintf(left, "%d", n - 1);
	execl("/proc/self/exe", argv[0], argv[1], left, NULL);
	must(0, "exec");
}

/* The system calls of 32-bit programs, from a 64-bit one. */
static void compat(void)
{
	char *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long r;

	strcpy(low, "thirty-two");
	asm volatile("int $0x80" : "=a"(r) : "a"(5L), "b"(low), "c"(0102L), "d"(0600L) : "r8", "r9", "r10", "r11", "memory");
	must(r >= 0, "open by int 0x80");
	asm volatile("int $0x80" : "=a"(r) : "a"(10L), "b"(low) : "r8", "r9", "r10", "r11", "memory");
	must(r == 0, "unlink by int 0x80");
}

/* Shared descriptors and directories: a child that is a process but shares them. */
static int sharing(void *unused)
{
	return chdir("shared") || touch("by-child") < 0;
}

static void shared(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	must(!mkdir("shared", 0700), "shared");
	must(clone(sharing, stack + sizeof(stack), CLONE_FS | CLONE_FILES | CLONE_VM | SIGCHLD, 0) > 0, "clone");
	wait(0);
	mkdir("by-parent", 0700);
}

/* The same file by other names: what was counted before must not count under
 * the old one. */
static void renamed(void)
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
static void rooted(void)
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

/* A mount that is nowhere any more, but still where we are. */
static void detached(void)
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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"toctou", toctou}, {"deleted-cwd", deleted_cwd}, {"deep", deep}, {"longest", longest}, {"chroot", chrooted},
		   {"thread-exec", thread_exec}, {"leader-exit", leader_exit}, {"memfd-exec", memfd_exec},
		   {"deleted-exec", deleted_exec}, {"interrupted", interrupted}, {"pid-reuse", pid_reuse},
		   {"compat", compat}, {"shared", shared}, {"detached", detached},
		   {"renamed", renamed}, {"rooted", rooted}, {"uring", uring}, {"sqpoll", sqpoll}};

	must(argc > 1, "which");
	if (!strcmp(argv[1], "exec-chain")) {
		exec_chain(argv);
		return 0;
	}
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (!strcmp(argv[1], all[i].name)) {
			all[i].run();
			return 0;
		}
	}
	return 2;
}
