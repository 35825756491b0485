#include "textflag.h"

// func call(nr, a, b, c, d, e, f uintptr) uintptr
TEXT ·call(SB), NOSPLIT, $0-64
	MOVD nr+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD c+24(FP), R2
	MOVD d+32(FP), R3
	MOVD e+40(FP), R4
	MOVD f+48(FP), R5
	SVC
	MOVD R0, ret+56(FP)
	RET

// func entryAddress() uintptr
TEXT ·entryAddress(SB), NOSPLIT, $0-8
	MOVD $·entry(SB), R0
	MOVD R0, ret+0(FP)
	RET

// entry is where the kernel starts the process: at RSP are argc, argv, 0, environ, 0, and
// the auxiliary vector. It leaves all as it was for a process that is to be a Go program.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	MOVD 0(RSP), R1
	CMP $4, R1
	BLT go
	MOVD 8(RSP), R1
	MOVD 0(R1), R2
	MOVD $0x75722d7961737361, R3 // "assay-ru"
	CMP R3, R2
	BNE go
	MOVHU 8(R1), R2
	CMP $0x6e, R2 // "n"
	BNE go
	MOVD 16(RSP), R1
	MOVD 0(R1), R2
	MOVD $0x0073706574735f5f, R3 // "__steps"
	CMP R3, R2
	BNE go
	MOVD 0(RSP), R1
	MOVD RSP, R4
	ADD R1<<3, R4
	ADD $16, R4 // environ
	MOVD R4, R1
variable:
	MOVD.P 8(R1), R2
	CBNZ R2, variable
auxiliary:
	MOVD.P 16(R1), R2
	CMP $23, R2 // AT_SECURE
	BEQ secure
	CBNZ R2, auxiliary
	B go
secure:
	MOVD -8(R1), R2
	CBNZ R2, go
	MOVD 24(RSP), R1 // the descriptor's number
	MOVD $0, R5
	MOVD $10, R6
digit:
	MOVBU.P 1(R1), R2
	CBZ R2, begin
	SUB $0x30, R2
	CMP $9, R2
	BHI go
	MUL R6, R5
	ADD R2, R5
	B digit
begin:
	MOVD ZR, g
	MOVD RSP, R1
	MOVD R1, R6
	SUB $64, R1
	AND $~15, R1
	MOVD R1, RSP
	MOVD R5, 8(RSP)
	MOVD R4, 16(RSP)
	MOVD R6, 40(RSP)
	CALL ·execute(SB)
	// It is a Go program from here on, without the list's two arguments.
	MOVD 40(RSP), R1
	MOVD 0(R1), R2
	MOVD 8(R1), R3
	SUB $2, R2
	ADD $16, R1
	MOVD R2, 0(R1)
	MOVD R3, 8(R1)
	MOVD R1, RSP
go:
	JMP _rt0_arm64_linux(SB)
