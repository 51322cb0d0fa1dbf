/* Length, control flow and cost class of one x86-64 instruction.
 *
 * Encodings as in the Intel 64 manual, volume 2, appendix A (opcode maps). Only what decides the length, the
 * control flow and the cost class is decoded; operands are not.
 */
#include "x86.h"

#include <string.h>

enum shape {
    BAD,        /* no instruction in 64-bit mode */
    NONE,       /* opcode alone */
    MODRM,
    MODRM_I8,
    MODRM_IZ,   /* immediate of operand size, 4 bytes at most */
    I8,
    I16,
    IZ,
    IV,         /* mov r64, imm64 */
    ENTER,      /* imm16, imm8 */
    MOFFS,      /* absolute address */
    REL8,
    REL32,
    GROUP3_8,   /* immediate only for test */
    GROUP3_Z,
};

#define ROW8(a) a, a, a, a, a, a, a, a
#define ALU MODRM, MODRM, MODRM, MODRM, I8, IZ, BAD, BAD

static const uint8_t one_byte[256] = {
    ALU, ALU, ALU, ALU, ALU, ALU, ALU, ALU,                                    /* 00-3f */
    ROW8(BAD), ROW8(BAD),                                                      /* 40-4f: REX */
    ROW8(NONE), ROW8(NONE),                                                    /* 50-5f */
    BAD, BAD, BAD, MODRM, BAD, BAD, BAD, BAD,                                  /* 60-67 */
    IZ, MODRM_IZ, I8, MODRM_I8, NONE, NONE, NONE, NONE,                        /* 68-6f */
    ROW8(REL8), ROW8(REL8),                                                    /* 70-7f */
    MODRM_I8, MODRM_IZ, BAD, MODRM_I8, MODRM, MODRM, MODRM, MODRM,             /* 80-87 */
    ROW8(MODRM),                                                               /* 88-8f */
    ROW8(NONE),                                                                /* 90-97 */
    NONE, NONE, BAD, NONE, NONE, NONE, NONE, NONE,                             /* 98-9f */
    MOFFS, MOFFS, MOFFS, MOFFS, NONE, NONE, NONE, NONE,                        /* a0-a7 */
    I8, IZ, NONE, NONE, NONE, NONE, NONE, NONE,                                /* a8-af */
    ROW8(I8), ROW8(IV),                                                        /* b0-bf */
    MODRM_I8, MODRM_I8, I16, NONE, BAD, BAD, MODRM_I8, MODRM_IZ,               /* c0-c7 */
    ENTER, NONE, I16, NONE, NONE, I8, BAD, NONE,                               /* c8-cf */
    MODRM, MODRM, MODRM, MODRM, BAD, BAD, BAD, NONE,                           /* d0-d7 */
    ROW8(MODRM),                                                               /* d8-df: x87 */
    REL8, REL8, REL8, REL8, I8, I8, I8, I8,                                    /* e0-e7 */
    REL32, REL32, BAD, REL8, NONE, NONE, NONE, NONE,                           /* e8-ef */
    BAD, NONE, BAD, BAD, NONE, NONE, GROUP3_8, GROUP3_Z,                       /* f0-f7 */
    NONE, NONE, NONE, NONE, NONE, NONE, MODRM, MODRM,                          /* f8-ff */
};

static const uint8_t two_byte[256] = {
    MODRM, MODRM, MODRM, MODRM, BAD, NONE, NONE, NONE,                         /* 00-07 */
    NONE, NONE, BAD, NONE, BAD, MODRM, NONE, MODRM_I8,                         /* 08-0f */
    ROW8(MODRM), ROW8(MODRM),                                                  /* 10-1f */
    MODRM, MODRM, MODRM, MODRM, BAD, BAD, BAD, BAD,                            /* 20-27 */
    ROW8(MODRM),                                                               /* 28-2f */
    NONE, NONE, NONE, NONE, NONE, NONE, BAD, NONE,                             /* 30-37 */
    BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD,                                    /* 38-3f: escapes */
    ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), /* 40-6f */
    MODRM_I8, MODRM_I8, MODRM_I8, MODRM_I8, MODRM, MODRM, MODRM, NONE,         /* 70-77 */
    ROW8(MODRM),                                                               /* 78-7f */
    ROW8(REL32), ROW8(REL32),                                                  /* 80-8f */
    ROW8(MODRM), ROW8(MODRM),                                                  /* 90-9f */
    NONE, NONE, NONE, MODRM, MODRM_I8, MODRM, BAD, BAD,                        /* a0-a7 */
    NONE, NONE, NONE, MODRM, MODRM_I8, MODRM, MODRM, MODRM,                    /* a8-af */
    ROW8(MODRM),                                                               /* b0-b7 */
    MODRM, MODRM, MODRM_I8, MODRM, MODRM, MODRM, MODRM, MODRM,                 /* b8-bf */
    MODRM, MODRM, MODRM_I8, MODRM, MODRM_I8, MODRM_I8, MODRM_I8, MODRM,        /* c0-c7 */
    ROW8(NONE),                                                                /* c8-cf */
    ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), ROW8(MODRM), /* d0-ff */
};

enum map { MAP_ONE, MAP_TWO, MAP_38, MAP_3A };

struct state {
    const uint8_t *at, *end;
    int operand16, address32, rex_w, repeat, vector;
    enum map map;
    uint8_t opcode, modrm;
};

/* Take `n` bytes; the caller sees from the pointer passing the end that they were not there. */
static void take(struct state *s, unsigned n) {
    s->at += n;
}

static uint8_t peek(const struct state *s) {
    return s->at < s->end ? *s->at : 0;
}

static void read_prefixes(struct state *s) {
    for (;; take(s, 1)) {
        switch (peek(s)) {
        case 0x66: s->operand16 = 1; continue;
        case 0x67: s->address32 = 1; continue;
        case 0xf2: case 0xf3: s->repeat = 1; continue;
        case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0xf0: continue;
        default: break;
        }
        break;
    }
    if ((peek(s) & 0xf0) == 0x40) {
        s->rex_w = (peek(s) >> 3) & 1;
        take(s, 1);
    }
}

/* The opcode, through the escapes and the vector prefixes; 0 where the map is unknown. */
static int read_opcode(struct state *s) {
    uint8_t first = peek(s);
    unsigned map = 0;
    take(s, 1);
    s->map = MAP_ONE;
    if (first == 0x0f) {
        map = 1;
        if (peek(s) == 0x38 || peek(s) == 0x3a) {
            map = peek(s) == 0x38 ? 2 : 3;
            take(s, 1);
        }
    } else if (first == 0xc5) {
        map = 1;
        take(s, 1);
    } else if (first == 0xc4) {
        map = peek(s) & 0x1f;
        take(s, 2);
    } else if (first == 0x62) {
        map = peek(s) & 7;
        take(s, 3);
        if (map == 5 || map == 6) /* FP16: operands as in map 2 */
            map = 2;
    } else {
        s->opcode = first;
        return 1;
    }
    s->vector = first != 0x0f;
    if (map < 1 || map > 3)
        return 0;
    s->map = (enum map)map;
    s->opcode = peek(s);
    take(s, 1);
    return 1;
}

static enum shape shape_of(const struct state *s) {
    if (s->map == MAP_ONE)
        return one_byte[s->opcode];
    if (s->map == MAP_TWO)
        return two_byte[s->opcode];
    return s->map == MAP_38 ? MODRM : MODRM_I8;
}

static void read_modrm(struct state *s) {
    uint8_t mod, rm, sib;
    s->modrm = peek(s);
    take(s, 1);
    mod = s->modrm >> 6;
    rm = s->modrm & 7;
    if (mod == 3)
        return;
    if (rm == 4) {
        sib = peek(s);
        take(s, 1);
        if (mod == 0 && (sib & 7) == 5)
            take(s, 4);
    } else if (mod == 0 && rm == 5) {
        take(s, 4);
    }
    take(s, mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static int has_modrm(enum shape shape) {
    return shape == MODRM || shape == MODRM_I8 || shape == MODRM_IZ || shape == GROUP3_8 || shape == GROUP3_Z;
}

static unsigned immediate_size(const struct state *s, enum shape shape) {
    unsigned z = s->operand16 ? 2 : 4;
    int test = ((s->modrm >> 3) & 7) < 2;
    switch (shape) {
    case I8: case MODRM_I8: case REL8: return 1;
    case I16: return 2;
    case ENTER: return 3;
    case REL32: return 4; /* the operand-size prefix is ignored by near branches in 64-bit mode */
    case IZ: case MODRM_IZ: return z;
    case IV: return s->rex_w ? 8 : z;
    case MOFFS: return s->address32 ? 4 : 8;
    case GROUP3_8: return test ? 1 : 0;
    case GROUP3_Z: return test ? z : 0;
    default: return 0;
    }
}

static enum x86_kind kind_in_one_byte_map(const struct state *s) {
    unsigned op = s->opcode, reg = (s->modrm >> 3) & 7;
    if ((op & 0xf0) == 0x70 || (op >= 0xe0 && op <= 0xe3)) return X86_BRANCH;
    if (op == 0xe8) return X86_CALL;
    if (op == 0xe9 || op == 0xeb) return X86_JUMP;
    if (op == 0xc2 || op == 0xc3 || op == 0xca || op == 0xcb || op == 0xcf) return X86_RETURN;
    if (op == 0xff && (reg == 2 || reg == 3)) return X86_CALL_INDIRECT;
    if (op == 0xff && (reg == 4 || reg == 5)) return X86_JUMP_INDIRECT;
    if (op == 0x69 || op == 0x6b) return X86_MULTIPLY;
    if (op == 0xf6 || op == 0xf7) return reg >= 6 ? X86_DIVIDE : reg >= 4 ? X86_MULTIPLY : X86_PLAIN;
    if (op == 0xcc || op == 0xcd || op == 0xf4 || (op == 0x90 && s->repeat)) return X86_SYSTEM; /* F3 90: pause */
    if (op >= 0xd8 && op <= 0xdf) {
        /* D8, DA, DC and DE hold the arithmetic of x87; 6 and 7 divide. The rest moves and controls. */
        if (op & 1) return X86_PLAIN;
        return reg >= 6 ? X86_FLOAT_DIVIDE : X86_FLOAT;
    }
    if (s->repeat && ((op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf) || (op >= 0x6c && op <= 0x6f)))
        return X86_REPEAT;
    return X86_PLAIN;
}

static enum x86_kind kind_of(const struct state *s) {
    unsigned op = s->opcode;
    if (s->map == MAP_ONE)
        return kind_in_one_byte_map(s);
    if (s->map == MAP_TWO) {
        if (op == 0x05 || op == 0x34 || op == 0x0b) return X86_SYSTEM;
        if (op == 0xae || op == 0xc7) return X86_STATE;
        if ((op & 0xf0) == 0x80) return X86_BRANCH;
        if (op == 0xaf) return X86_MULTIPLY;
        if (op == 0x51 || op == 0x5e) return X86_FLOAT_DIVIDE;
        if (op >= 0x51 && op <= 0x5f && (op < 0x53 || op > 0x57)) return X86_FLOAT; /* 53-57: estimates, logic */
        return X86_PLAIN;
    }
    if (s->map == MAP_38 && s->vector && (op & 0x0f) >= 6 && op >= 0x96 && op <= 0xbf)
        return X86_FLOAT; /* fused multiply-add */
    return X86_PLAIN;
}

static int64_t read_displacement(const uint8_t *end, unsigned size) {
    int8_t narrow;
    int32_t wide;
    if (size == 1) {
        memcpy(&narrow, end - 1, 1);
        return narrow;
    }
    memcpy(&wide, end - 4, 4);
    return wide;
}

struct x86_insn x86_decode(const uint8_t *code, size_t size) {
    struct state s = {.at = code, .end = code + size};
    struct x86_insn insn = {0};
    enum shape shape;
    read_prefixes(&s);
    if (!read_opcode(&s) || (shape = shape_of(&s)) == BAD)
        return insn;
    if (has_modrm(shape))
        read_modrm(&s);
    take(&s, immediate_size(&s, shape));
    if (s.at > s.end || s.at - code > 15)
        return insn;
    insn.length = (unsigned)(s.at - code);
    insn.kind = kind_of(&s);
    if (shape == REL8 || shape == REL32) {
        insn.displacement_size = shape == REL8 ? 1 : 4;
        insn.displacement = read_displacement(s.at, insn.displacement_size);
    }
    return insn;
}
