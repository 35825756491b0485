/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads of a word of the kernel's memory without a helper. */
#ifndef ASSAY_WORD_H
#define ASSAY_WORD_H
#include "core.h"

/* The sources are compiled twice. With WORDS, for kernels that have bpf_rdonly_cast, since
 * Linux 6.2: a word is read with one instruction, because the verifier can be told that
 * there is a struct that begins with a word. Without WORDS, a helper reads it. */
#ifdef WORDS
#define HAS_WORDS 1

/* The number of struct timespec64 among the kernel's types. Set before load. */
volatile const u32 word_type;

extern void *bpf_rdonly_cast(const void *obj, u32 type) __ksym;

/* The word at an address of the kernel's memory. */
static __always_inline u64 word_at(u64 address)
{
	struct timespec64 *there = bpf_rdonly_cast((void *)address, word_type);

	return there->tv_sec;
}

/* A field of the struct at ptr, of up to a word. */
#define FIELD(ptr, T, field) ((typeof(((T *)0)->field))word_at((u64)(ptr) + bpf_core_field_offset(T, field)))
#else
#define HAS_WORDS 0

static __always_inline u64 word_at(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

#define FIELD(ptr, T, field)                                                \
	({                                                                  \
		T *__at = (T *)(ptr);                                       \
		typeof(__at->field) __field = {};                           \
		bpf_core_read(&__field, sizeof(__field), &__at->field);     \
		__field;                                                    \
	})
#endif

#endif
