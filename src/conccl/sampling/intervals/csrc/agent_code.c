/* Part of the counting agent: the functions of the program and what can be counted in them. */
#include "agent_parts.h"

#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct object objects[AGENT_MODULES];
unsigned object_count;

static int is_runtime(const char *path) {
    /* The C library and the loader keep their hand-written assembler to themselves. */
    static const char *const names[] = {"ld-linux", "libc.so", "libpthread.so", "libdl.so", "linux-vdso", "conccl-agent"};
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

static void note_own(const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uint64_t low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, high = low + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && low <= (uint64_t)note_own && (uint64_t)note_own < high)
            shared->own_low = low, shared->own_high = high;
    }
}

static int note_object(struct dl_phdr_info *info, size_t size, void *unused) {
    static char program[sizeof modules->path];
    struct object object = {.path = info->dlpi_name, .bias = info->dlpi_addr, .low = ~0ull};
    (void)size, (void)unused;
    note_own(info);
    if (object.path[0] == '\0') {
        ssize_t n = object_count == 0 ? readlink("/proc/self/exe", program, sizeof program - 1) : -1;
        if (n <= 0)
            return 0; /* the vDSO */
        program[n] = '\0';
        object.path = program;
    }
    if (is_runtime(object.path) || object_count == AGENT_MODULES)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uint64_t low = object.bias + segment->p_vaddr, high = low + segment->p_memsz;
        if (segment->p_type == PT_GNU_EH_FRAME)
            object.unwind = (const uint8_t *)low;
        if (segment->p_type != PT_LOAD)
            continue;
        object.low = low < object.low ? low : object.low;
        object.high = high > object.high ? high : object.high;
        if ((segment->p_flags & PF_X) && object.texts < 4)
            object.text[object.texts++] = (struct text){low, high};
    }
    objects[object_count++] = object;
    return 0;
}

int in_text(const struct object *object, uint64_t address) {
    for (unsigned i = 0; i < object->texts; i++)
        if (address >= object->text[i].low && address < object->text[i].high)
            return 1;
    return 0;
}

static int add_place(struct places *places, struct place place) {
    if (places->count == places->room) {
        uint64_t room = places->room ? 2 * places->room : 1 << 16, size = places->room * sizeof place;
        void *moved = size ? mremap(places->at, size, 2 * size, MREMAP_MAYMOVE)
                           : mmap(NULL, room * sizeof place, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (moved == MAP_FAILED)
            return 0;
        places->at = moved;
        places->room = room;
    }
    places->at[places->count++] = place;
    return 1;
}

/* Whether the instruction's displacement can be pointed elsewhere: 4 bytes at its end, no prefix before. */
int countable(const struct object *object, uint64_t low, struct place *place, struct x86_insn insn) {
    const uint8_t *code = (const uint8_t *)place->at;
    place->target = place->at + insn.length + (uint64_t)insn.displacement;
    if (insn.displacement_size != 4)
        return 0;
    if (insn.kind == X86_CALL && insn.length == 5 && code[0] == 0xe8) {
        place->kind = AGENT_CALL;
        return in_text(object, place->target);
    }
    if (place->target < low || place->target >= place->at)
        return 0; /* no loop of this function */
    place->kind = insn.kind == X86_JUMP ? AGENT_JUMP : AGENT_BRANCH;
    return (insn.kind == X86_JUMP && insn.length == 5) || (insn.kind == X86_BRANCH && insn.length == 6);
}

/* Add what can be counted in a function; it is refused where decoding does not end at its end. */
static void scan_function(const struct object *object, uint64_t low, uint64_t high, struct places *places) {
    uint64_t before = places->count, at = low;
    while (at < high) {
        struct x86_insn insn = x86_decode((const uint8_t *)at, high - at);
        struct place place = {.at = at};
        if (insn.length == 0 || (countable(object, low, &place, insn) && !add_place(places, place)))
            break;
        at += insn.length;
    }
    if (at != high) {
        places->count = before;
        shared->refused++;
    }
}

/* Walk the sorted table of .eh_frame_hdr (LSB core, "Exception Frames"): each entry leads to the length. */
void scan_object(const struct object *object, uint64_t stride, struct places *places) {
    const uint8_t *header = object->unwind;
    uint32_t count;
    /* version 1, count as udata4, table as datarel sdata4: what every linker on x86-64 writes */
    if (header == NULL || header[0] != 1 || header[2] != 0x03 || header[3] != 0x3b)
        return;
    memcpy(&count, header + 8, 4);
    for (uint32_t i = 0; i < count; i++) {
        int32_t entry[2], begin;
        uint32_t length, range;
        memcpy(entry, header + 12 + 8 * (uint64_t)i, 8);
        const uint8_t *fde = header + entry[1];
        if ((i * 2654435761u >> 8) % stride != 0)
            continue; /* drawn evenly, the same in every run */
        uint64_t low = (uint64_t)header + (uint64_t)(int64_t)entry[0];
        memcpy(&length, fde, 4);
        memcpy(&begin, fde + 8, 4);
        memcpy(&range, fde + 12, 4);
        if (length == 0xffffffff || (uint64_t)(fde + 8) + (uint64_t)(int64_t)begin != low)
            continue; /* another pointer encoding */
        if (range > 0 && in_text(object, low) && in_text(object, low + range - 1))
            scan_function(object, low, low + range, places);
    }
}

void find_objects(void) {
    dl_iterate_phdr(note_object, NULL);
}
