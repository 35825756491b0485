#include "textflag.h"

// NEED refuses to start below a limit: that of the resource, soft (0) or hard (8). 261 is prlimit64.
#define NEED(resource, which, least, text) \
	MOVD $0, R0; \
	MOVD $resource, R1; \
	MOVD $0, R2; \
	MOVD RSP, R3; \
	MOVD $261, R8; \
	SVC; \
	MOVD $text(SB), R9; \
	MOVD $least, R4; \
	MOVD which(RSP), R5; \
	CMP R4, R5; \
	BLO refuse

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
	// What the caller ignored and blocked: nobody can learn it once the Go runtime has begun.
	MOVD R0, R19
	SUB $48, RSP
	MOVD $0, R20
	MOVD $64, R21
signal:
	MOVD R21, R0
	MOVD $0, R1
	ADD $8, RSP, R2
	MOVD $8, R3
	MOVD $134, R8 // rt_sigaction
	SVC
	LSL $1, R20, R20
	CBNZ R0, handled
	MOVD 8(RSP), R1
	CMP $1, R1 // SIG_IGN
	BNE handled
	ORR $1, R20, R20
handled:
	SUBS $1, R21, R21
	BNE signal
	MOVD R20, ·ignoredAtStart(SB)
	MOVD $0, R0
	MOVD $0, R1
	ADD $8, RSP, R2
	MOVD $8, R3
	MOVD $135, R8 // rt_sigprocmask
	SVC
	MOVD 8(RSP), R1
	MOVD R1, ·blockedAtStart(SB)
	ADD $48, RSP
	MOVD R19, R0
	// A Go runtime that lacks one of these dies with pages of its own. Its limits are in limits_linux.go.
	MOVD R0, R19
	SUB $16, RSP
	NEED(7, 8, 16, ·fewFiles)            // RLIMIT_NOFILE: Go raises the soft limit to the hard one
	NEED(9, 0, 0x3c000000, ·littleSpace) // RLIMIT_AS
	NEED(2, 0, 0x6000000, ·littleData)  // RLIMIT_DATA
	MOVD $174, R8 // getuid: for root, no limit of processes holds
	SVC
	CBZ R0, enough
	NEED(6, 0, 32, ·fewProcesses)        // RLIMIT_NPROC
enough:
	ADD $16, RSP
	MOVD R19, R0
	JMP _rt0_arm64_linux(SB)
refuse:
	MOVD $2, R0
	MOVD 0(R9), R1
	MOVD 8(R9), R2
	MOVD $64, R8 // write
	SVC
	MOVD $125, R0
	MOVD $94, R8 // exit_group
	SVC
	BRK
