#include "textflag.h"

// func addresses() (handler, restorer uintptr)
TEXT ·addresses(SB), NOSPLIT, $0-16
	MOVD $·handler(SB), R0
	MOVD R0, handler+0(FP)
	MOVD $·restorer(SB), R0
	MOVD R0, restorer+8(FP)
	RET

// handler writes the number of the signal, in R0, to the pipe, as one byte.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	SUB $16, RSP
	MOVD R0, 0(RSP)
	MOVD ·pipe(SB), R0
	MOVD RSP, R1
	MOVD $1, R2
	MOVD $64, R8 // write
	SVC
	ADD $16, RSP
	RET

// restorer is where handler returns to.
TEXT ·restorer(SB), NOSPLIT|NOFRAME, $0
	MOVD $139, R8 // rt_sigreturn
	SVC
	BRK
