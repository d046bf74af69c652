#include "textflag.h"

DATA commas<>+0(SB)/1, $0x2c
GLOBL commas<>(SB), RODATA|NOPTR, $1

DATA zeros<>+0(SB)/8, $0x3030303030303030
DATA zeros<>+8(SB)/8, $0x3030303030303030
GLOBL zeros<>(SB), RODATA|NOPTR, $16

DATA nines<>+0(SB)/8, $0x0909090909090909
DATA nines<>+8(SB)/8, $0x0909090909090909
GLOBL nines<>(SB), RODATA|NOPTR, $16

// The weights of digits in pairs, of pairs in fours, and of fours in eights.
DATA tens<>+0(SB)/8, $0x010a010a010a010a
DATA tens<>+8(SB)/8, $0x010a010a010a010a
GLOBL tens<>(SB), RODATA|NOPTR, $16

DATA hundreds<>+0(SB)/8, $0x0001006400010064
DATA hundreds<>+8(SB)/8, $0x0001006400010064
GLOBL hundreds<>(SB), RODATA|NOPTR, $16

DATA thousands<>+0(SB)/8, $0x0001271000012710
DATA thousands<>+8(SB)/8, $0x0001271000012710
GLOBL thousands<>(SB), RODATA|NOPTR, $16

// EIGHTS puts the number of the sixteen digits of X0 into W, with TEMP.
#define EIGHTS(W, TEMP) \
	VPMADDUBSW X11, X0, X0; \
	VPMADDWD X12, X0, X0; \
	VPACKUSDW X0, X0, X0; \
	VPMADDWD X13, X0, X0; \
	VMOVQ X0, W; \
	MOVL W, TEMP; \
	SHRQ $32, W; \
	IMUL3Q $100000000, TEMP, TEMP; \
	ADDQ TEMP, W

// NUMBER reads the number of so many bytes at P into (DI). A byte that is no digit, a point in another place and a number without a digit before or
// after it end at done: the rows of impossible lengths move the point among the digits.
#define NUMBER(P, LENGTH) \
	VMOVDQU (P), X0; \
	XORL BX, BX; \
	CMPB (P), $'-'; \
	SETEQ BX; \
	CMPB 1(P)(BX*1), $'.'; \
	JNE done; \
	LEAQ (BX)(LENGTH*2), R9; \
	SHLQ $5, R9; \
	VPSUBB X9, X0, X0; \
	VPSHUFB (R13)(R9*1), X0, X0; \
	VPSUBUSB X10, X0, X1; \
	VPTEST X1, X1; \
	JNZ done; \
	EIGHTS(R11, BX); \
	MOVQ R11, (DI); \
	MOVQ P, R11; \
	SUBQ R14, R11; \
	SHLQ $6, R11; \
	ORQ 16(R13)(R9*1), R11; \
	MOVQ R11, 8(DI); \
	ADDQ $16, DI

// func plainVectors(b []byte, i int, out []plain) (n, next int)
//
// R14 is the text, SI the number in it, R8 the last address from which 34 bytes can be read, R15 what is returned as next, DI and CX what is left of
// out. The commas of two numbers are found at a time: only the address of the next two follows from what was read.
TEXT ·plainVectors(SB), NOSPLIT, $0-72
	MOVQ b_base+0(FP), R14
	MOVQ b_len+8(FP), R8
	MOVQ i+24(FP), SI
	MOVQ out_base+32(FP), DI
	MOVQ out_len+40(FP), CX
	LEAQ -34(R14)(R8*1), R8
	ADDQ R14, SI
	MOVQ SI, R15
	LEAQ ·shuffles(SB), R13
	VPBROADCASTB commas<>(SB), Y8
	VMOVDQU zeros<>(SB), X9
	VMOVDQU nines<>(SB), X10
	VMOVDQU tens<>(SB), X11
	VMOVDQU hundreds<>(SB), X12
	VMOVDQU thousands<>(SB), X13
	TESTQ CX, CX
	JZ done

loop:
	CMPQ SI, R8
	JA done
	CMPB (SI), $' '
	JE space

pair:
	VPCMPEQB (SI), Y8, Y1
	VPMOVMSKB Y1, DX
	TZCNTL DX, AX // 32 if there is no comma
	CMPL AX, $15
	JA long
	NUMBER(SI, AX)
	LEAQ (SI)(AX*1), R15
	DECQ CX
	JZ done
	LEAQ 1(R15), R12
	CMPB (R12), $' '
	JNE second
	INCQ R12

second:
	BLSRL DX, DX
	JZ next
	TZCNTL DX, DX
	ADDQ SI, DX // the second comma
	MOVQ DX, AX
	SUBQ R12, AX
	CMPL AX, $15
	JA next
	NUMBER(R12, AX)
	MOVQ DX, R15
	LEAQ 1(DX), SI
	DECQ CX
	JNZ loop
	JMP done

next:
	MOVQ R12, SI
	JMP loop

space:
	ADDQ $1, SI
	JMP pair

	// The last digits of a longer number are its last sixteen bytes. Those before them are the one before the point, R11, and up to two
	// after it, DX and R10.
long:
	CMPL AX, $21
	JA done
	XORL BX, BX
	CMPB (SI), $'-'
	SETEQ BX
	LEAQ (SI)(BX*1), R12
	CMPB 1(R12), $'.'
	JNE done
	MOVQ AX, R9
	SUBQ BX, R9 // from 15 on
	CMPL R9, $20
	JA done
	SHLQ $6, R9
	LEAQ ·longTails(SB), R10
	LEAQ -(15*64)(R10)(R9*1), R9
	VMOVDQU -16(SI)(AX*1), X0
	VPSUBB X9, X0, X0
	VPAND (R9), X0, X0
	VPSUBUSB X10, X0, X1
	VPTEST X1, X1
	JNZ done
	MOVBLZX (R12), R11
	SUBL $'0', R11
	CMPL R11, $9
	JA done
	MOVBLZX 2(R12), DX
	SUBL $'0', DX
	CMPL DX, $9
	JA done
	MOVBLZX 3(R12), R10
	SUBL $'0', R10
	CMPL R10, $9
	JA done
	IMULQ 16(R9), R11
	IMULQ 24(R9), DX
	IMULQ 32(R9), R10
	ADDQ DX, R11
	ADDQ R10, R11
	EIGHTS(DX, R10)
	ADDQ DX, R11
	MOVQ R11, (DI)
	MOVQ SI, DX
	SUBQ R14, DX
	SHLQ $6, DX
	SHLL $5, BX
	ORQ BX, DX
	ORQ 40(R9), DX
	MOVQ DX, 8(DI)
	ADDQ $16, DI
	LEAQ (SI)(AX*1), R15
	LEAQ 1(R15), SI
	DECQ CX
	JNZ loop

done:
	VZEROUPPER
	MOVQ out_len+40(FP), AX
	SUBQ CX, AX
	MOVQ AX, n+56(FP)
	SUBQ R14, R15
	MOVQ R15, next+64(FP)
	RET
