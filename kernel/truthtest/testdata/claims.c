/* Names that another changes while the kernel uses them. */
#define _GNU_SOURCE
#include "nasty.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static char *name;        /* what is opened and removed */
static int file;          /* that name is mapped of, or -1 */

static void rename_to(const char *to)
{
	if (file >= 0)
		must(pwrite(file, to, strlen(to) + 1, 0) > 0, "pwrite");
	else
		memcpy(name, to, strlen(to) + 1);
}

/* Changes the name of an open that waits, and is gone before the open ends. */
static int meanwhile(void *unused)
{
	usleep(250 * 1000);
	rename_to("never");
	return 0;
}

static void *thread(void *unused)
{
	meanwhile(0);
	return 0;
}

static void on_alarm(int sig) {}

/* Opens of a FIFO that nobody reads, which signals end, until the name has changed
 * during one. */
static void wait_in_open(void)
{
	struct itimerval every = {{0, 100 * 1000}, {0, 100 * 1000}};
	struct sigaction sa = {.sa_handler = on_alarm};

	sigaction(SIGALRM, &sa, 0);
	setitimer(ITIMER_REAL, &every, 0);
	do
		must(open(name, O_WRONLY) < 0 && errno == EINTR, "open");
	while (strcmp(name, "never"));
}

static void in_mapping(int flags)
{
	if (flags & MAP_SHARED) {
		name = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	} else {
		file = touch("mapped");
		must(!ftruncate(file, 4096), "ftruncate");
		name = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
	}
	must(name != MAP_FAILED, "mmap");
}

static void one_change(void (*begin)(void))
{
	must(!mkfifo("waits", 0600) && !mkfifo("never", 0600), "mkfifo");
	rename_to("never"); /* the same, alone */
	wait_in_open();
	rename_to("waits");
	begin();
	wait_in_open();
}

static char own[4096];

static void by_thread(void)
{
	pthread_t t;

	must(!pthread_create(&t, 0, thread, 0), "pthread_create");
}

static void by_clone(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	must(clone(meanwhile, stack + sizeof(stack), CLONE_VM | SIGCHLD, 0) > 0, "clone");
}

static void by_fork(void)
{
	if (!fork())
		_exit(meanwhile(0));
}

void changed_by_thread(void)
{
	name = own;
	file = -1;
	one_change(by_thread);
}

void changed_by_clone(void)
{
	name = own;
	file = -1;
	one_change(by_clone);
}

void changed_in_shared(void)
{
	file = -1;
	in_mapping(MAP_SHARED);
	one_change(by_fork);
}

void changed_in_file(void)
{
	in_mapping(MAP_PRIVATE);
	one_change(by_fork);
}

static volatile int over;

static void *flip(void *unused)
{
	volatile char *first = name;

	for (unsigned n = 0; !over; n++)
		*first = "ab"[n >> 8 & 1]; /* for long enough that the kernel may see each */
	return 0;
}

/* Removes one of two files by a name that changes all the time, and says which it
 * was, until the name was another right behind the call often enough. */
static void removals(int racing)
{
	char paths[2][16], behind;
	int others = racing ? 0 : 20;
	pthread_t t;

	name = own;
	strcpy(name, "a");
	if (racing)
		must(!pthread_create(&t, 0, flip, 0), "pthread_create");
	for (int i = 0; i < each || (others < 20 && i < 100000); i++) {
		for (int n = 0; n < 2; n++) {
			sprintf(paths[n], "%c%d", "ab"[n], i);
			close(touch(paths[n]));
		}
		strcpy(name + 1, paths[0] + 1);
		must(!unlink(name), "unlink");
		behind = *name;
		printf("%s\n", paths[!!access(paths[1], F_OK)]);
		others += access(paths[behind == 'b'], F_OK) == 0;
	}
	over = 1;
	if (racing)
		pthread_join(t, 0);
}

void removals_alone(void) { removals(0); }
void removals_racing(void) { removals(1); }

#define PLACE 100 /* a descriptor that no other call gets */

static volatile int replacing, opening;

/* Keeps the calling thread on its CPU, as that counts repeats, or lets it go. */
static void stay(int here)
{
	cpu_set_t cpus;

	memset(&cpus, 0xff, sizeof(cpus));
	if (here) {
		CPU_ZERO(&cpus);
		CPU_SET(sched_getcpu(), &cpus);
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* Puts another file on the descriptor once for each open, a little later each time. */
static void *replace(void *file)
{
	unsigned wait = 0;

	stay(0);
	while (replacing) {
		if (!opening)
			continue;
		for (volatile unsigned i = 0; i < wait % 4096; i++)
			;
		wait += 7;
		while (dup2(*(int *)file, PLACE) < 0 && opening) /* EBUSY: it is given, but not open yet */
			;
		while (opening)
			;
	}
	return 0;
}

/* Opens the file onto the least free descriptor, which the other thread knows of. */
static void open_in_place(const char *name, int flags)
{
	int fd;

	close(PLACE);
	opening = 1;
	fd = open(name, flags);
	opening = 0;
	if (fd != PLACE)
		close(fd);
}

/* Takes all descriptors below PLACE. */
static void leave_place(int other)
{
	int fd;

	while ((fd = dup(other)) < PLACE && fd >= 0)
		;
	close(fd);
}

/* Opens files by all kinds of names. */
static void open_named(void)
{
	static const char *const names[] = {"asked", "./asked", "d/../asked", "link", "d/link", "/proc/self/cwd/asked"};

	for (int i = 0; i < 20000; i++)
		open_in_place(names[i % 6], O_RDONLY | (i % 12 < 6 ? O_CLOEXEC : 0));
}

static void replacements(int racing)
{
	int other;
	pthread_t t;

	must(close(open("asked", O_CREAT | O_WRONLY, 0600)) == 0, "asked");
	must(!mkdir("d", 0700) && !symlink("asked", "link") && !symlink("../link", "d/link"), "names");
	must((other = open("other", O_CREAT | O_RDONLY, 0600)) >= 0, "other");
	replacing = racing;
	if (racing)
		must(!pthread_create(&t, 0, replace, &other), "thread");
	leave_place(other);
	open_named();
	replacing = 0;
	if (racing)
		pthread_join(t, 0);
}

/* Whether a thread has put another file on the descriptor before the call returns. */
void replaced(void) { replacements(1); }
void replaced_alone(void) { replacements(0); }

#define NAMED (PLACE - 1)

/* The same, by a name that led to the other file shortly before: a link's, or a descriptor's. */
static void known(const char *name, int asked, int other, int exchanged)
{
	for (int i = 0; i < 1000; i++) {
		must(dup2(other, NAMED) == NAMED, "dup2");
		for (int n = 0; n < 10; n++)
			close(open(name, O_RDONLY));
		must(dup2(asked, NAMED) == NAMED, "dup2");
		must(!exchanged || !syscall(SYS_renameat2, AT_FDCWD, "link", AT_FDCWD, "new", 2), "exchange");
		for (int n = 0; n < 50; n++)
			open_in_place(name, O_RDONLY);
		must(!exchanged || !syscall(SYS_renameat2, AT_FDCWD, "link", AT_FDCWD, "new", 2), "exchange");
	}
}

void replaced_known(void)
{
	char name[32];
	int asked, other;
	pthread_t t;

	sprintf(name, "/proc/self/fd/%d", NAMED);
	close(touch("asked"));
	close(touch("other"));
	must((asked = open("asked", O_RDWR)) >= 0 && (other = open("other", O_RDWR)) >= 0, "files");
	must(!symlink("other", "link") && !symlink("asked", "new"), "names");
	leave_place(other);
	replacing = 1;
	must(!pthread_create(&t, 0, replace, &other), "thread");
	stay(1);
	known("link", asked, other, 1);
	known(name, asked, other, 0);
	replacing = 0;
	pthread_join(t, 0);
}

/* Sets an attribute whose name is in memory that another may change. */
static void attribute(int flags)
{
	close(touch("f"));
	file = -1;
	name = mmap(0, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	strcpy(name, "user.x");
	syscall(SYS_setxattr, "f", name, "v", 1, 0);
}

void attribute_alone(void) { attribute(MAP_PRIVATE); }
void attribute_shared(void) { attribute(MAP_SHARED); }
