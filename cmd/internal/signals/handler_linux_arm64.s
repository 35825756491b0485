#include "textflag.h"

// func addresses() (handler, restorer uintptr)
TEXT ·addresses(SB), NOSPLIT, $0-16
	MOVD $·handler(SB), R0
	MOVD R0, handler+0(FP)
	MOVD $·restorer(SB), R0
	MOVD R0, restorer+8(FP)
	RET

// handler makes the signal in R0 pending, and rings the bell.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	SUB $1, R0
	MOVD $1, R5
	LSL R0, R5, R1
	MOVD $·pending(SB), R2
again:
	LDAXR (R2), R3
	ORR R1, R3
	STLXR R3, (R2), R4
	CBNZ R4, again
	SUB $16, RSP
	MOVD R5, 0(RSP)
	MOVD ·bell(SB), R0
	MOVD RSP, R1
	MOVD $8, R2
	MOVD $64, R8 // write
	SVC
	ADD $16, RSP
	RET

// restorer is where handler returns to.
TEXT ·restorer(SB), NOSPLIT|NOFRAME, $0
	MOVD $139, R8 // rt_sigreturn
	SVC
	BRK
