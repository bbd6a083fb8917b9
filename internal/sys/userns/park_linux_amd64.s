#include "textflag.h"

// func rawPark(flags, parent uintptr) uintptr
//
// The child lives in registers: DI, SI, R9 and AX. It shares our stack and must not touch it.
TEXT ·rawPark(SB),NOSPLIT|NOFRAME,$0-24
	MOVQ	flags+0(FP), DI
	MOVQ	parent+8(FP), R9
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$56, AX		// clone
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, ret+16(FP)
	RET
child:
	MOVL	$1, DI		// PR_SET_PDEATHSIG
	MOVL	$9, SI		// SIGKILL
	MOVL	$157, AX	// prctl
	SYSCALL
	MOVL	$110, AX	// getppid
	SYSCALL
	CMPQ	AX, R9
	JNE	exit
wait:
	MOVL	$34, AX		// pause
	SYSCALL
	JMP	wait
exit:
	XORL	DI, DI
	MOVL	$60, AX		// exit
	SYSCALL
	JMP	exit
