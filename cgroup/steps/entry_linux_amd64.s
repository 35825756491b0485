#include "textflag.h"

// NEED refuses to start below a limit: that of the resource, soft (0) or hard (8). 302 is prlimit64.
#define NEED(resource, which, least, text) \
	XORL DI, DI; \
	MOVL $resource, SI; \
	XORL DX, DX; \
	MOVQ SP, R10; \
	MOVL $302, AX; \
	SYSCALL; \
	LEAQ text(SB), BX; \
	MOVQ $least, CX; \
	CMPQ which(SP), CX; \
	JCS refuse

// func call(nr, a, b, c, d, e, f uintptr) uintptr
TEXT ·call(SB), NOSPLIT, $0-64
	MOVQ nr+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ c+24(FP), DX
	MOVQ d+32(FP), R10
	MOVQ e+40(FP), R8
	MOVQ f+48(FP), R9
	SYSCALL
	MOVQ AX, ret+56(FP)
	RET

// func entryAddress() uintptr
TEXT ·entryAddress(SB), NOSPLIT, $0-8
	LEAQ ·entry(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// entry is where the kernel starts the process: at SP are argc, argv, 0, environ, 0, and
// the auxiliary vector. It leaves all as it was for a process that is to be a Go program.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	CMPQ 0(SP), $4
	JLT go
	MOVQ 8(SP), AX
	MOVQ $0x75722d7961737361, CX // "assay-ru"
	CMPQ 0(AX), CX
	JNE go
	CMPW 8(AX), $0x6e // "n"
	JNE go
	MOVQ 16(SP), AX
	MOVQ $0x0073706574735f5f, CX // "__steps"
	CMPQ 0(AX), CX
	JNE go
	MOVQ 0(SP), BX
	LEAQ 16(SP)(BX*8), BX // environ
	MOVQ BX, DX
variable:
	ADDQ $8, DX
	CMPQ -8(DX), $0
	JNE variable
auxiliary:
	MOVQ 0(DX), CX
	CMPQ CX, $23 // AT_SECURE
	JEQ secure
	ADDQ $16, DX
	TESTQ CX, CX
	JNE auxiliary
	JMP go
secure:
	CMPQ 8(DX), $0
	JNE go
	MOVQ 24(SP), AX // the descriptor's number
	XORL CX, CX
digit:
	MOVBLZX 0(AX), DX
	INCQ AX
	TESTL DX, DX
	JEQ begin
	SUBL $0x30, DX
	CMPL DX, $9
	JHI go
	IMULL $10, CX
	ADDL DX, CX
	JMP digit
begin:
	MOVQ SP, DX
	SUBQ $64, SP
	ANDQ $~15, SP
	MOVQ CX, 0(SP)
	MOVQ BX, 8(SP)
	MOVQ DX, 24(SP)
	// What calls call looks for g below FS, and never uses it.
	MOVQ $0, 32(SP)
	LEAQ 40(SP), SI
	MOVQ $0x1002, DI // ARCH_SET_FS
	MOVQ $158, AX // arch_prctl
	SYSCALL
	CALL ·execute(SB)
	// It is a Go program from here on, without the list's two arguments.
	MOVQ 24(SP), BX
	MOVQ 0(BX), CX
	MOVQ 8(BX), AX
	SUBQ $2, CX
	ADDQ $16, BX
	MOVQ CX, 0(BX)
	MOVQ AX, 8(BX)
	MOVQ BX, SP
go:
	// What the caller ignored and blocked: nobody can learn it once the Go runtime has begun.
	MOVQ DX, R12
	SUBQ $48, SP
	XORL R13, R13
	MOVL $64, BX
signal:
	MOVL BX, DI
	XORL SI, SI
	LEAQ 8(SP), DX
	MOVL $8, R10
	MOVL $13, AX // rt_sigaction
	SYSCALL
	ADDQ R13, R13
	TESTQ AX, AX
	JNE handled
	CMPQ 8(SP), $1 // SIG_IGN
	JNE handled
	ORQ $1, R13
handled:
	SUBL $1, BX
	JNE signal
	MOVQ R13, ·ignoredAtStart(SB)
	XORL DI, DI
	XORL SI, SI
	LEAQ 8(SP), DX
	MOVL $8, R10
	MOVL $14, AX // rt_sigprocmask
	SYSCALL
	MOVQ 8(SP), AX
	MOVQ AX, ·blockedAtStart(SB)
	ADDQ $48, SP
	MOVQ R12, DX
	// A Go runtime that lacks one of these dies with pages of its own. Its limits are in limits_linux.go.
	MOVQ DX, R12
	SUBQ $16, SP
	NEED(7, 8, 16, ·fewFiles)            // RLIMIT_NOFILE: Go raises the soft limit to the hard one
	NEED(9, 0, 0x3c000000, ·littleSpace) // RLIMIT_AS
	NEED(2, 0, 0x6000000, ·littleData)  // RLIMIT_DATA
	MOVL $102, AX // getuid: for root, no limit of processes holds
	SYSCALL
	TESTL AX, AX
	JEQ enough
	NEED(6, 0, 32, ·fewProcesses)        // RLIMIT_NPROC
enough:
	ADDQ $16, SP
	MOVQ R12, DX
	JMP _rt0_amd64_linux(SB)
refuse:
	MOVL $2, DI
	MOVQ 0(BX), SI
	MOVQ 8(BX), DX
	MOVL $1, AX // write
	SYSCALL
	MOVL $125, DI
	MOVL $231, AX // exit_group
	SYSCALL
	INT $3
