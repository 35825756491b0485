#include "textflag.h"

// func addresses() (handler, restorer uintptr)
TEXT ·addresses(SB), NOSPLIT, $0-16
	LEAQ ·handler(SB), AX
	MOVQ AX, handler+0(FP)
	LEAQ ·restorer(SB), AX
	MOVQ AX, restorer+8(FP)
	RET

// handler makes the signal in DI pending, and rings the bell.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	LEAQ -1(DI), CX
	MOVQ $1, AX
	SHLQ CX, AX
	LOCK
	ORQ AX, ·pending(SB)
	MOVQ ·bell(SB), DI
	MOVQ $1, AX // both what is written and the number of write
	PUSHQ AX
	MOVQ SP, SI
	MOVQ $8, DX
	SYSCALL
	POPQ AX
	RET

// restorer is where handler returns to.
TEXT ·restorer(SB), NOSPLIT|NOFRAME, $0
	MOVQ $15, AX // rt_sigreturn
	SYSCALL
	INT $3
