#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern int each; /* how often an attack is made */

void must(int ok, const char *what);
int touch(const char *name); /* creates, and returns a descriptor */

void toctou(void);
void deleted_cwd(void);
void deep(void);
void longest(void);
void chrooted(void);
void renamed(void);
void rooted(void);
void below_fd(void);
void detached(void);
void changed_by_thread(void);
void changed_by_clone(void);
void changed_in_shared(void);
void changed_in_file(void);
void removals_alone(void);
void removals_racing(void), replaced(void), replaced_alone(void), replaced_known(void);
void attribute_alone(void);
void attribute_shared(void);
void through_links(void);
void flipped_modes(void);
void flipped_namespaces(void);
void odd_arguments(void);
void second_control(void);
void flipped(void);
void exchanged(void);
void exchanged_alone(void);
void exchanged_among_many(void);
void one_name_twice(void);
void uring_received(void);
void swapped_link(void);
void moved_cwd(void);
void read_into(void);
void messages(void);
void bad_addresses(void);
void every_call(void);
void uring(void);
void uring_renamed(void);
void sqpoll(void);
void uring_linked(void);
void uring_registered(void);
void uring_quiet(void);
void uring_accept(void);
void uring_harmless(void);
void uring_command(void);
void uring_socket(void);
void uring_datagram(void);
void uring_control(void);
void uring_inherited(void);
