/* What leads a name elsewhere while the kernel uses it. */
#define _GNU_SOURCE
#include "nasty.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>


static volatile int over;

static void directory(const char *name) { must(!mkdir(name, 0777), name); }

static int exists(const char *path) { return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW); }

static void exchange(void) { renameat2(AT_FDCWD, "d", AT_FDCWD, "e", RENAME_EXCHANGE); }

static void swap_link(void)
{
	static unsigned n;

	if (!symlink(n++ & 1 ? "a" : "b", "new"))
		rename("new", "l");
}

static void move_cwd(void)
{
	static unsigned n;

	if (chdir(n++ & 1 ? "../a" : "../b"))
		_exit(3);
}

/* Has another process do it all the time. */
static pid_t beside(void (*change)(void))
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	while (!pid)
		change();
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, 0, 0);
}

/* Makes directories below one that another process exchanges with a second one. */
void exchanged(void)
{
	pid_t pid;

	directory("d");
	directory("e");
	pid = beside(exchange);
	for (int i = 0; i < each; i++) {
		char name[16];

		sprintf(name, "d/%d", i);
		must(!mkdir(name, 0700), "mkdir");
		printf("%s\n", name);
	}
	end(pid);
}

static void walk(void)
{
	static unsigned n;
	char from[16], to[16];

	sprintf(from, "w/%u", n++);
	sprintf(to, "w/%u", n);
	must(!rename(from, to), "rename");
}

/* The same, while a third process changes so many others that no table holds them. */
void exchanged_among_many(void)
{
	pid_t pid;

	directory("w");
	close(touch("w/0"));
	pid = beside(walk);
	exchanged();
	end(pid);
}

/* The same, by the only task. */
void exchanged_alone(void)
{
	directory("d");
	directory("e");
	for (int i = 0; i < 100; i++) {
		char name[16];

		exchange();
		sprintf(name, "d/%d", i);
		must(!mkdir(name, 0700), "mkdir");
		printf("%s\n", name);
	}
}

static void say_where(int i)
{
	char a[32], b[32];

	sprintf(a, "a/%d", i);
	sprintf(b, "b/%d", i);
	must(exists(a) != exists(b), "one of two");
	printf("%s\n", exists(a) ? a : b);
}

/* Makes directories through a symbolic link that another process replaces. Says where they
 * are. */
void swapped_link(void)
{
	pid_t pid;

	directory("a");
	directory("b");
	must(!symlink("a", "l"), "symlink");
	pid = beside(swap_link);
	for (int i = 0; i < each; i++) {
		char name[16];

		sprintf(name, "l/%d", i);
		must(!mkdir(name, 0700), "mkdir");
	}
	end(pid);
	for (int i = 0; i < each; i++)
		say_where(i);
}

static void *move(void *unused)
{
	while (!over)
		move_cwd();
	return 0;
}

/* The same below a current directory that a thread changes. */
void moved_cwd(void)
{
	pthread_t t;

	directory("a");
	directory("b");
	must(!chdir("a"), "chdir");
	must(!pthread_create(&t, 0, move, 0), "pthread_create");
	for (int i = 0; i < each; i++) {
		char name[16];

		sprintf(name, "%d", i);
		must(!mkdir(name, 0700), "mkdir");
	}
	over = 1;
	pthread_join(t, 0);
	must(!chdir(".."), "chdir");
	for (int i = 0; i < each; i++)
		say_where(i);
}
