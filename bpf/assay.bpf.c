//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The observer's programs. See the headers, one thing each. */
#include "process.h"
#include "syscalls.h"
#include "packets.h"
#include "uring.h"

char _license[] SEC("license") = "Dual BSD/GPL";
