/* Length, control flow and cost class of one x86-64 instruction. */
#ifndef CONCCL_X86_H
#define CONCCL_X86_H

#include <stddef.h>
#include <stdint.h>

enum x86_kind {
    X86_PLAIN,
    X86_MULTIPLY,
    X86_DIVIDE,
    X86_FLOAT,
    X86_FLOAT_DIVIDE,
    X86_JUMP,
    X86_BRANCH,
    X86_CALL,
    X86_RETURN,
    X86_JUMP_INDIRECT,
    X86_CALL_INDIRECT,
    X86_SYSTEM,
    X86_STATE, /* saves or restores registers at once, and what shares the opcode: fences, cmpxchg16b */
    X86_REPEAT,
    X86_KINDS
};

struct x86_insn {
    unsigned length;     /* bytes; 0 where the bytes are no instruction that this decoder knows */
    enum x86_kind kind;
    int64_t displacement; /* of a direct jump, branch or call, from the end of the instruction */
    unsigned displacement_size; /* bytes; 0 where there is none */
};

/* Decode the instruction at `code`, of which `size` bytes may be read. */
struct x86_insn x86_decode(const uint8_t *code, size_t size);

#endif
