/* Compiled by frida inside the followed program: copies each block with code that writes the trace.
 *
 * The added code changes neither flags nor registers: it uses lea, mov, push and pop only, below the red zone.
 */
#include <gum/gumstalker.h>

#include "trace.h"

struct range {
    guint64 low, high;
};

/* Given by the script: */
extern guint64 cursor;         /* the word of the shared file that points behind the trace */
extern guint64 table[];        /* descriptions of blocks */
extern guint64 table_used;     /* words of them */
extern guint64 table_full;     /* set to 1 where they do not fit */
extern struct range hidden[];  /* code that is not the program's; ends with an empty range */

#define MOST 2048 /* instructions of a block */
#define BELOW 128
#define PUSHED 16

static void copy(void *to, const void *from, guint n) {
    for (guint i = 0; i < n; i++)
        ((guint8 *)to)[i] = ((const guint8 *)from)[i];
}

static int is_hidden(guint64 pc) {
    for (const struct range *range = hidden; range->high != 0; range++)
        if (pc >= range->low && pc < range->high)
            return 1;
    return 0;
}

struct code {
    guint8 bytes[96];
    guint size;
};

static void put(struct code *code, const void *bytes, guint n) {
    copy(code->bytes + code->size, bytes, n);
    code->size += n;
}

static void put8(struct code *code, guint value) {
    guint8 byte = (guint8)value;
    put(code, &byte, 1);
}

static void begin(struct code *code) {
    code->size = 0;
    put(code, "\x48\x8d\x64\x24\x80", 5); /* lea rsp, [rsp - 128] */
    put(code, "\x50\x51", 2);             /* push rax; push rcx */
}

static void load_cursor(struct code *code) {
    guint64 cell = (guint64)&cursor;
    put(code, "\x48\xa1", 2); /* mov rax, [cell] */
    put(code, &cell, 8);
}

/* Write rcx `words` words behind the trace. */
static void store(struct code *code, guint words) {
    put(code, "\x48\x89\x48", 3); /* mov [rax + 8 * words], rcx */
    put8(code, 8 * words);
}

static void end(struct code *code, guint words, GumStalkerOutput *output) {
    guint64 cell = (guint64)&cursor;
    put(code, "\x48\x8d\x40", 3); /* lea rax, [rax + 8 * words] */
    put8(code, 8 * words);
    put(code, "\x48\xa3", 2); /* mov [cell], rax */
    put(code, &cell, 8);
    put(code, "\x59\x58", 2);                         /* pop rcx; pop rax */
    put(code, "\x48\x8d\xa4\x24\x80\x00\x00\x00", 8); /* lea rsp, [rsp + 128] */
    gum_x86_writer_put_bytes(output->writer.x86, code->bytes, code->size);
}

static void put_constant(struct code *code, guint64 value) {
    put(code, "\x48\xb9", 2); /* mov rcx, value */
    put(code, &value, 8);
}

static int number_of(x86_reg reg) {
    switch (reg) {
    case X86_REG_RAX: case X86_REG_EAX: return 0;
    case X86_REG_RCX: case X86_REG_ECX: return 1;
    case X86_REG_RDX: case X86_REG_EDX: return 2;
    case X86_REG_RBX: case X86_REG_EBX: return 3;
    case X86_REG_RSP: case X86_REG_ESP: return 4;
    case X86_REG_RBP: case X86_REG_EBP: return 5;
    case X86_REG_RSI: case X86_REG_ESI: return 6;
    case X86_REG_RDI: case X86_REG_EDI: return 7;
    case X86_REG_R8: case X86_REG_R8D: return 8;
    case X86_REG_R9: case X86_REG_R9D: return 9;
    case X86_REG_R10: case X86_REG_R10D: return 10;
    case X86_REG_R11: case X86_REG_R11D: return 11;
    case X86_REG_R12: case X86_REG_R12D: return 12;
    case X86_REG_R13: case X86_REG_R13D: return 13;
    case X86_REG_R14: case X86_REG_R14D: return 14;
    case X86_REG_R15: case X86_REG_R15D: return 15;
    default: return -1; /* none, or a vector of indices */
    }
}

/* lea rcx, [base + index * scale + displacement] */
static void put_lea(struct code *code, int base, int index, guint scale, gint32 displacement) {
    guint log = scale == 8 ? 3 : scale == 4 ? 2 : scale == 2 ? 1 : 0;
    put8(code, 0x48 | (index > 7 ? 2 : 0) | (base > 7 ? 1 : 0));
    put8(code, 0x8d);
    put8(code, base < 0 ? 0x0c : 0x8c);
    put8(code, log << 6 | (index < 0 ? 4 : index & 7) << 3 | (base < 0 ? 5 : base & 7));
    put(code, &displacement, 4);
}

/* rcx = the address of a memory operand, from the registers as the instruction finds them */
static void put_address(struct code *code, const x86_op_mem *memory) {
    int base = number_of(memory->base), index = number_of(memory->index);
    put_lea(code, base, index, (guint)memory->scale, (gint32)memory->disp + (base == 4 ? BELOW + PUSHED : 0));
    if (memory->segment == X86_REG_FS) { /* thread-local: fs:[0] holds the segment's own address */
        put(code, "\x64\x48\x8b\x04\x25\x00\x00\x00\x00", 9); /* mov rax, fs:[0] */
        put(code, "\x48\x8d\x0c\x01", 4);                         /* lea rcx, [rcx + rax] */
    }
}

/* A block while it is compiled. */
struct description {
    guint64 pc;
    guint instructions, operands, bytes;
    int known;       /* whether the distance is */
    gint64 distance; /* of the stack pointer now from what it was when the block began */
    guint64 uses[2 * MOST];
    guint8 lengths[MOST], code[15 * MOST];
};

extern struct description description; /* of the block that is being compiled */

static void use(struct description *d, guint64 how, guint size, guint64 place) {
    guint64 bytes = size > 63 ? 63 : size == 0 ? 8 : size;
    d->uses[d->operands++] = how | bytes << OPERAND_SIZE | (place & OPERAND_PLACE);
}

static void use_stack(struct description *d, guint64 how, guint size, gint64 distance) {
    use(d, how | OPERAND_STACK, size, STACK_ORIGIN + (guint64)distance);
}

static int is_repeated(const cs_x86 *x86) {
    guint prefix = x86->prefix[0], opcode = x86->opcode[0];
    return (prefix == 0xf2 || prefix == 0xf3) && opcode >= 0xa4 && opcode <= 0xaf;
}

/* The last four groups end a block or repeat; the model does not cost what they load and store (model.h). */
static int touches_nothing(const cs_insn *insn) {
    guint id = insn->id;
    return id == X86_INS_LEA || id == X86_INS_NOP || id == X86_INS_ENDBR64 ||
           (id >= X86_INS_PREFETCH && id <= X86_INS_PREFETCHW) || id == X86_INS_CALL || id == X86_INS_JMP ||
           id == X86_INS_RET || is_repeated(&insn->detail->x86);
}

static int pushes(guint id) {
    return id == X86_INS_PUSH || id == X86_INS_PUSHFQ;
}

static int pops(guint id) {
    return id == X86_INS_POP || id == X86_INS_POPFQ;
}

/* What push, pop and leave do without naming it. */
static void note_stack_use(const cs_insn *insn, GumStalkerOutput *output, struct description *d) {
    guint64 how = pushes(insn->id) ? OPERAND_WRITE : OPERAND_READ;
    gint64 offset = pushes(insn->id) ? -8 : 0;
    struct code code;
    if (!pushes(insn->id) && !pops(insn->id) && insn->id != X86_INS_LEAVE)
        return;
    if (d->known && insn->id != X86_INS_LEAVE) {
        use_stack(d, how, 8, d->distance + offset);
        return;
    }
    begin(&code);
    if (insn->id == X86_INS_LEAVE)
        put_lea(&code, 5, -1, 1, 0);
    else
        put_lea(&code, 4, -1, 1, (gint32)(BELOW + PUSHED + offset));
    load_cursor(&code);
    store(&code, 0);
    end(&code, 1, output);
    use(d, how, 8, 0);
}

static void note_operand(const cs_insn *insn, const cs_x86_op *operand, GumStalkerOutput *output, struct description *d) {
    const x86_op_mem *memory = &operand->mem;
    guint64 how = 0;
    struct code code;
    if (operand->access & CS_AC_WRITE)
        how |= OPERAND_WRITE;
    if ((operand->access & CS_AC_READ) || how == 0)
        how |= OPERAND_READ;
    if (memory->base == X86_REG_RIP) {
        use(d, how | OPERAND_FIXED, operand->size, insn->address + insn->size + (guint64)memory->disp);
    } else if (memory->base == X86_REG_RSP && memory->index == X86_REG_INVALID && d->known) {
        use_stack(d, how, operand->size, d->distance + memory->disp);
    } else {
        begin(&code);
        put_address(&code, memory);
        load_cursor(&code);
        store(&code, 0);
        end(&code, 1, output);
        use(d, how, operand->size, 0);
    }
}

static void move_stack_pointer(const cs_insn *insn, struct description *d) {
    const cs_x86 *x86 = &insn->detail->x86;
    int named = x86->op_count > 0 && x86->operands[0].type == X86_OP_REG && x86->operands[0].reg == X86_REG_RSP;
    if (pushes(insn->id))
        d->distance -= 8;
    else if (pops(insn->id))
        d->distance += 8;
    if (insn->id == X86_INS_LEAVE || (named && insn->id == X86_INS_POP))
        d->known = 0;
    else if (named && (insn->id == X86_INS_SUB || insn->id == X86_INS_ADD) && x86->operands[1].type == X86_OP_IMM)
        d->distance += insn->id == X86_INS_ADD ? x86->operands[1].imm : -x86->operands[1].imm;
    else if (named && (x86->operands[0].access & CS_AC_WRITE))
        d->known = 0;
}

static void note_uses(const cs_insn *insn, GumStalkerOutput *output, struct description *d) {
    const cs_x86 *x86 = &insn->detail->x86;
    for (guint i = 0; i < x86->op_count && !touches_nothing(insn); i++)
        if (x86->operands[i].type == X86_OP_MEM)
            note_operand(insn, &x86->operands[i], output, d);
    note_stack_use(insn, output, d);
    move_stack_pointer(insn, d);
}

static void write_description(const struct description *d) {
    guint64 *at = table + table_used;
    guint8 *bytes;
    at[0] = d->pc;
    at[1] = d->instructions | (guint64)d->operands << 16 | (guint64)d->bytes << 32;
    copy(at + 2, d->uses, 8 * d->operands);
    bytes = (guint8 *)(at + 2 + d->operands);
    copy(bytes, d->lengths, d->instructions);
    copy(bytes + d->instructions, d->code, d->bytes);
    table_used += 2 + d->operands + (d->instructions + d->bytes + 7) / 8;
}

/* Add to the block what writes its word and its stack pointer. */
static void put_block_word(GumStalkerOutput *output) {
    struct code code;
    begin(&code);
    put_constant(&code, TRACE_BLOCK | table_used);
    load_cursor(&code);
    store(&code, 0);
    put_lea(&code, 4, -1, 1, BELOW + PUSHED);
    store(&code, 1);
    end(&code, 2, output);
}

void transform(GumStalkerIterator *iterator, GumStalkerOutput *output, gpointer user_data) {
    struct description *d = &description;
    const cs_insn *insn;
    int seen = 0;
    d->instructions = d->operands = d->bytes = 0;
    d->known = 1;
    d->distance = 0;
    while (gum_stalker_iterator_next(iterator, &insn)) {
        if (!seen) {
            d->pc = insn->address;
            seen = is_hidden(d->pc) ? -1 : 1;
            if (seen > 0 && table_used + 5 * MOST > TRACE_TABLE) {
                table_full = 1;
                seen = -1;
            }
            if (seen > 0)
                put_block_word(output);
        }
        if (seen > 0 && d->instructions < MOST && d->operands + 8 < 2 * MOST) {
            d->lengths[d->instructions++] = (guint8)insn->size;
            copy(d->code + d->bytes, insn->bytes, insn->size);
            d->bytes += insn->size;
            note_uses(insn, output, d);
        }
        gum_stalker_iterator_keep(iterator);
    }
    if (seen > 0)
        write_description(d);
}
