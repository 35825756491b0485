#include "textflag.h"

// func addresses() (handler, restorer uintptr)
TEXT ·addresses(SB), NOSPLIT, $0-16
	LEAQ ·handler(SB), AX
	MOVQ AX, handler+0(FP)
	LEAQ ·restorer(SB), AX
	MOVQ AX, restorer+8(FP)
	RET

// handler writes the number of the signal, in DI, to the pipe, as one byte.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	PUSHQ DI
	MOVQ ·pipe(SB), DI
	MOVQ SP, SI
	MOVQ $1, DX
	MOVQ $1, AX // write
	SYSCALL
	POPQ DI
	RET

// restorer is where handler returns to.
TEXT ·restorer(SB), NOSPLIT|NOFRAME, $0
	MOVQ $15, AX // rt_sigreturn
	SYSCALL
	INT $3
