/* The trace that a followed program writes into a shared file.
 *
 * Words of 64 bits. The first TRACE_TABLE words are the table of blocks, each described once when it is
 * compiled; two halves follow that hold segments of the trace by turns, one from trigger to trigger: a block's word
 * as it begins to execute, the address of each memory operand as it is used, and marks where triggers fired.
 * Behind a block's word stands the stack pointer. A description: program counter | instructions |
 * operands << 16 | bytes << 32, a word for each operand, a byte for the length of each instruction, code. An
 * operand says how it is used and where: at an address that follows in the trace, at a distance from the
 * block's stack pointer, or at a fixed address.
 */
#ifndef CONCCL_TRACE_H
#define CONCCL_TRACE_H

#define TRACE_BLOCK (1ull << 63) /* | place of the description in the table */
#define TRACE_MARK (1ull << 62)  /* | action << 32 | number of the trigger */
#define TRACE_TABLE (1ull << 24) /* words */
#define OPERAND_READ (1ull << 63)
#define OPERAND_WRITE (1ull << 62)
#define OPERAND_STACK (1ull << 61)
#define OPERAND_FIXED (1ull << 60)
#define OPERAND_SIZE 54 /* bits 54 to 59: bytes; below: distance from the stack pointer + 2^40, or address */
#define OPERAND_PLACE ((1ull << OPERAND_SIZE) - 1)
#define STACK_ORIGIN (1ull << 40)

#endif
