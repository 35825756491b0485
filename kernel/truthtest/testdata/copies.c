/* Names that change right behind the kernel's back, for each call that takes one. */
#define _GNU_SOURCE
#include "nasty.h"

#include <linux/aio_abi.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>


static char *name;
static volatile int over;

static void *flip(void *unused)
{
	volatile char *first = name;

	for (unsigned n = 0; !over; n++)
		*first = "ab"[n >> 8 & 1]; /* for long enough that the kernel may see each */
	return 0;
}

static int exists(const char *path) { return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW); }

static int has_mode(const char *path, unsigned mode)
{
	struct stat st;

	must(!stat(path, &st), "stat");
	return (st.st_mode & 07777) == mode;
}

static void file(const char *path) { close(touch(path)); }
static void directory(const char *path) { must(!mkdir(path, 0700), "mkdir"); }
static void old(const char *path) { file("old"); }

static int do_unlink(void) { return unlink(name); }
static int do_rmdir(void) { return rmdir(name); }
static int do_mkdir(void) { return mkdir(name, 0755); }
static int do_mknod(void) { return mknod(name, S_IFIFO | 0600, 0); }
static int do_symlink(void) { return symlink("target", name); }
static int do_link(void) { return link("old", name); }
static int do_rename(void) { return rename("old", name); }
static int do_chmod(void) { return chmod(name, 0604); }

static int gone(const char *path) { return !exists(path); }
static int changed(const char *path) { return has_mode(path, 0604); }

static const struct {
	const char *name;
	void (*prepare)(const char *path);
	int (*run)(void);
	int (*was)(const char *path); /* whether the call was about path */
} calls[] = {
	{"unlink", file, do_unlink, gone},     {"rmdir", directory, do_rmdir, gone}, {"mkdir", 0, do_mkdir, exists},
	{"mknod", 0, do_mknod, exists},        {"symlink", 0, do_symlink, exists},   {"link", old, do_link, exists},
	{"rename", old, do_rename, exists},    {"chmod", file, do_chmod, changed},
};

/* Carries out each call with a name that another thread changes all the time, and says
 * which name it was. */
void flipped(void)
{
	static char room[4096];
	pthread_t t;

	name = room;
	strcpy(name, "a");
	must(!pthread_create(&t, 0, flip, 0), "pthread_create");
	for (unsigned c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
		for (int i = 0; i < each; i++) {
			char paths[2][32];

			for (int n = 0; n < 2; n++) {
				sprintf(paths[n], "%c-%s-%d", "ab"[n], calls[c].name, i);
				if (calls[c].prepare)
					calls[c].prepare(paths[n]);
			}
			strcpy(name + 1, paths[0] + 1);
			must(!calls[c].run(), calls[c].name);
			must(calls[c].was(paths[0]) != calls[c].was(paths[1]), "one of two");
			printf("%s\n", paths[!calls[c].was(paths[0])]);
		}
	}
	over = 1;
	pthread_join(t, 0);
}

/* The same by a device: a read that bypasses the cache is under way into the memory
 * that the call names, and no other task is. */
void read_into(void)
{
	static const struct {
		const char *name;
		int make;
	} both[] = {{"mkdir", 0}, {"unlink", 1}};
	aio_context_t ring = 0;
	int fd = open("blocks", O_RDWR | O_CREAT | O_DIRECT, 0600);

	name = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(fd >= 0 && name != MAP_FAILED && !syscall(SYS_io_setup, 1, &ring), "prepare");
	for (int c = 0; c < 2; c++) {
		for (int i = 0; i < each; i++) {
			struct iocb read = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (unsigned long)name,
				.aio_nbytes = 4096}, *list = &read;
			struct io_event done;
			char paths[2][32];

			for (int n = 0; n < 2; n++) {
				sprintf(paths[n], "%c-%s-%d", "ab"[n], both[c].name, i);
				if (both[c].make)
					close(touch(paths[n]));
			}
			strcpy(name, paths[1]);
			must(pwrite(fd, name, 4096, 0) == 4096, "pwrite");
			strcpy(name, paths[0]);
			must(syscall(SYS_io_submit, ring, 1, &list) == 1, "io_submit");
			must(!(both[c].make ? unlink(name) : mkdir(name, 0700)), both[c].name);
			must(syscall(SYS_io_getevents, ring, 1, 1, &done, 0) == 1, "io_getevents");
			must(exists(paths[0]) != exists(paths[1]), "one of two");
			printf("%s\n", paths[exists(paths[0]) == both[c].make]);
		}
	}
}

/* Gives one place as both names of a rename, while another thread changes what stands there. Says what was
 * renamed to what. */
void one_name_twice(void)
{
	static char room[4096];
	pthread_t t;
	int renamed = 0;

	name = room;
	strcpy(name, "a");
	file("old");
	must(!pthread_create(&t, 0, flip, 0), "pthread_create");
	for (int i = 0; i < 1000 * each; i++) {
		char paths[2][32];
		int now;

		for (int n = 0; n < 2; n++)
			sprintf(paths[n], "%c-twice-%d", "ab"[n], i);
		must(!rename("old", paths[0]), "rename");
		strcpy(name + 1, paths[0] + 1);
		rename(name, name);
		now = exists(paths[1]);
		must(exists(paths[0]) != now, "one of two");
		if (now)
			printf("%d\n", i);
		renamed += now;
		must(!rename(paths[now], "old"), "rename back");
		if (renamed == 20)
			break;
	}
	over = 1;
	pthread_join(t, 0);
}
