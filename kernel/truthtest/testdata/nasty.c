/* Programs that do one nasty thing each, named by the first argument, in the
 * working directory. They say on standard output what only they can know. */
#define _GNU_SOURCE
#include "nasty.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
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
	asm volatile("int $0x80" : "=a"(r) : "a"(5L), "b"(low), "c"(0102L), "d"(0600L) : "r8", "r9", "r10", "r11",
		"memory");
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

int each = 1000;

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"toctou", toctou}, {"deleted-cwd", deleted_cwd}, {"deep", deep}, {"longest", longest},
		{"chroot", chrooted}, {"thread-exec", thread_exec}, {"leader-exit", leader_exit},
		{"memfd-exec", memfd_exec}, {"deleted-exec", deleted_exec}, {"interrupted", interrupted},
		{"pid-reuse", pid_reuse}, {"compat", compat}, {"shared", shared}, {"detached", detached},
		{"renamed", renamed}, {"rooted", rooted}, {"below-fd", below_fd}, {"uring", uring},
		{"uring-renamed", uring_renamed}, {"sqpoll", sqpoll}, {"uring-linked", uring_linked},
		{"uring-registered", uring_registered}, {"uring-quiet", uring_quiet}, {"uring-accept", uring_accept},
		{"uring-harmless", uring_harmless}, {"uring-command", uring_command}, {"uring-socket", uring_socket},
		{"uring-datagram", uring_datagram}, {"uring-control", uring_control},
		{"uring-inherited", uring_inherited}, {"changed-by-thread", changed_by_thread},
		{"changed-by-clone", changed_by_clone}, {"changed-in-shared", changed_in_shared},
		{"changed-in-file", changed_in_file}, {"removals-alone", removals_alone},
		{"removals-racing", removals_racing}, {"replaced", replaced}, {"replaced-alone", replaced_alone},
		{"replaced-known", replaced_known},
		{"attribute-alone", attribute_alone},
		{"attribute-shared", attribute_shared}, {"through-links", through_links},
		{"flipped-modes", flipped_modes}, {"flipped-namespaces", flipped_namespaces},
		{"odd-arguments", odd_arguments}, {"second-control", second_control}, {"flipped", flipped},
		{"read-into", read_into}, {"messages", messages}, {"bad-addresses", bad_addresses},
		{"every-call", every_call}, {"exchanged", exchanged}, {"exchanged-alone", exchanged_alone},
		{"exchanged-among-many", exchanged_among_many}, {"one-name-twice", one_name_twice},
		{"uring-received", uring_received},
		{"swapped-link", swapped_link}, {"moved-cwd", moved_cwd}
	};

	must(argc > 1, "which");
	if (!strcmp(argv[1], "exec-chain")) {
		exec_chain(argv);
		return 0;
	}
	if (argc > 2)
		each = atoi(argv[2]);
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (!strcmp(argv[1], all[i].name)) {
			all[i].run();
			return 0;
		}
	}
	return 2;
}
