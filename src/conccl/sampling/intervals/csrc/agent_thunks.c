/* Part of the counting agent: thunks, the code that counts an instruction and goes where it led. */
#include "agent_parts.h"

#include <string.h>
#include <sys/mman.h>

#define THUNK 64
#define GIB (1ull << 30)

/* Room within reach of a 32-bit displacement: below the object, so that the heap can grow behind it. */
static uint8_t *map_near(const struct object *object, uint64_t size) {
    for (uint64_t step = 1 << 16; step < GIB; step += 1 << 20) {
        uint64_t below = (object->low - size - step) & ~(uint64_t)(AGENT_PAGE - 1);
        uint64_t above = (object->high + GIB - step) & ~(uint64_t)(AGENT_PAGE - 1);
        for (int side = 0; side < 2; side++) {
            void *want = (void *)(side == 0 ? below : above), *got;
            if (side == 0 && (object->low < size + step + (1 << 16)))
                continue;
            got = mmap(want, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (got == want)
                return got;
            if (got != MAP_FAILED)
                munmap(got, size);
        }
    }
    return NULL;
}

static uint8_t *put(uint8_t *at, const void *bytes, unsigned n) {
    memcpy(at, bytes, n);
    return at + n;
}

static uint8_t *put_displacement(uint8_t *at, uint64_t target) {
    int32_t displacement = (int32_t)(target - (uint64_t)(at + 4));
    return put(at, &displacement, 4);
}

/* Below the red zone, where a function may keep what it has not pushed. */
static const uint8_t below_red_zone[] = {0x48, 0x8d, 0x64, 0x24, 0x80};                  /* lea rsp, [rsp - 128] */
static const uint8_t above_red_zone[] = {0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00}; /* lea rsp, [rsp + 128] */

static uint8_t *put_jump(uint8_t *at, uint64_t target) {
    return put_displacement(put(at, "\xe9", 1), target);
}

static uint8_t *put_stub_call(uint8_t *at, uint32_t site, uint64_t stub) {
    at = put(at, "\x68", 1); /* push site */
    at = put(at, &site, 4);
    at = put_displacement(put(at, "\xff\x15", 2), stub);  /* call [stub] */
    return put(at, "\x48\x8d\x64\x24\x08", 5);           /* lea rsp, [rsp + 8] */
}

static void write_counting_thunk(uint8_t *at, uint64_t counter, const struct place *place) {
    if (place->kind == AGENT_CALL) {
        at = put_displacement(put(at, "\x48\xff\x05", 3), counter); /* inc qword [counter] */
        put_jump(at, place->target);
        return;
    }
    at = put(at, below_red_zone, sizeof below_red_zone);
    at = put(at, "\x50", 1);                                      /* push rax */
    at = put_displacement(put(at, "\x48\x8b\x05", 3), counter);   /* mov rax, [counter] */
    at = put(at, "\x48\x8d\x40\x01", 4);                          /* lea rax, [rax + 1] */
    at = put_displacement(put(at, "\x48\x89\x05", 3), counter);   /* mov [counter], rax */
    at = put(at, "\x58", 1);                                      /* pop rax */
    at = put(at, above_red_zone, sizeof above_red_zone);
    put_jump(at, place->target);
}

static void write_trigger_thunk(uint8_t *at, uint64_t counter, const struct place *place, uint32_t site, uint64_t stub) {
    if (place->kind == AGENT_CALL) {
        at = put_displacement(put(at, "\x48\xff\x0d", 3), counter); /* dec qword [counter] */
        at = put(at, "\x75\x10", 2);                               /* jne over the stub call */
        at = put_stub_call(at, site, stub);
        put_jump(at, place->target);
        return;
    }
    at = put(at, below_red_zone, sizeof below_red_zone);
    at = put(at, "\x51", 1);                                      /* push rcx */
    at = put_displacement(put(at, "\x48\x8b\x0d", 3), counter);   /* mov rcx, [counter] */
    at = put(at, "\x48\x8d\x49\xff", 4);                          /* lea rcx, [rcx - 1] */
    at = put_displacement(put(at, "\x48\x89\x0d", 3), counter);   /* mov [counter], rcx */
    at = put(at, "\xe3\x02\xeb\x12", 4);                          /* jrcxz to the stub call; jmp over it */
    at = put(at, "\x9c", 1);                                      /* pushfq */
    at = put_stub_call(at, site, stub);
    at = put(at, "\x9d", 1);                                      /* popfq */
    at = put(at, "\x59", 1);                                      /* pop rcx */
    at = put(at, above_red_zone, sizeof above_red_zone);
    put_jump(at, place->target);
}

static int protect_text(const struct object *object, int protection) {
    for (unsigned i = 0; i < object->texts; i++) {
        uint64_t low = object->text[i].low & ~(uint64_t)(AGENT_PAGE - 1);
        if (mprotect((void *)low, object->text[i].high - low, protection) != 0)
            return 0;
    }
    return 1;
}

/* Point the places of one object at thunks; sites first .. first + count of the table are theirs. */
int patch_object(const struct object *object, const struct place *places, uint64_t count, uint64_t first) {
    uint64_t page = AGENT_PAGE, counters = (count * 8 + page - 1) / page * page;
    uint64_t size = counters + page + (count * THUNK + page - 1) / page * page;
    uint8_t *room = map_near(object, size), *thunk;
    uint64_t stub;
    if (room == NULL || mmap(room, counters, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared_file, (off_t)(counters_offset + 8 * first)) == MAP_FAILED) {
        fail("no room within 2 GiB of %s", object->path);
        return 0;
    }
    stub = (uint64_t)room + counters;
    *(uint64_t *)stub = (uint64_t)agent_stub;
    if (!protect_text(object, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        fail("the code of %s cannot be made writable", object->path);
        return 0;
    }
    thunk = room + counters + page;
    for (uint64_t i = 0; i < count; i++, thunk += THUNK) {
        uint64_t counter = (uint64_t)room + 8 * i;
        if (shared->mode == AGENT_COUNT) {
            write_counting_thunk(thunk, counter, &places[i]);
        } else {
            write_trigger_thunk(thunk, counter, &places[i], (uint32_t)(first + i), stub);
            trigger_counters[first + i] = (volatile uint64_t *)counter;
        }
        put_displacement((uint8_t *)places[i].at + (places[i].kind == AGENT_BRANCH ? 2 : 1), (uint64_t)thunk);
    }
    protect_text(object, PROT_READ | PROT_EXEC);
    mprotect(room + counters, size - counters, PROT_READ | PROT_EXEC);
    modules[sites[first].module].thunks_low = (uint64_t)room;
    modules[sites[first].module].thunks_high = (uint64_t)room + size;
    return 1;
}

