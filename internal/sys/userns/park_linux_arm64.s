#include "textflag.h"

// func rawPark(flags, parent uintptr) uintptr
//
// The child lives in registers: R0 to R5, R8 and R19. It shares our stack and must not touch it.
TEXT ·rawPark(SB),NOSPLIT|NOFRAME,$0-24
	MOVD	flags+0(FP), R0
	MOVD	parent+8(FP), R19
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$220, R8	// clone
	SVC
	CBZ	R0, child
	MOVD	R0, ret+16(FP)
	RET
child:
	MOVD	$1, R0		// PR_SET_PDEATHSIG
	MOVD	$9, R1		// SIGKILL
	MOVD	$167, R8	// prctl
	SVC
	MOVD	$173, R8	// getppid
	SVC
	CMP	R19, R0
	BNE	exit
wait:
	MOVD	ZR, R0
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	$73, R8		// ppoll of nothing, for ever
	SVC
	B	wait
exit:
	MOVD	ZR, R0
	MOVD	$93, R8		// exit
	SVC
	B	exit
