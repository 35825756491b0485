//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The observer's programs. See the headers, one thing each. */
#include "process.h"
#include "syscalls.h"
#include "packets.h"
#include "submit.h"
#include "complete.h"

/* Keeps in the object the types that only user space names. */
struct {
	struct counter counter;
	struct slot slot;
	struct endpoint endpoint;
	struct traffic traffic;
	struct owner owner;
	struct request request;
} *shared_types;

char _license[] SEC("license") = "Dual BSD/GPL";
