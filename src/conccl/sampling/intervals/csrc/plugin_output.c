/* Part of the QEMU plugin: the files that it writes. */
#include "plugin_parts.h"

#include <inttypes.h>

struct stream {
    FILE *file;
    uint64_t touched_count, touched_room;
    struct block **touched; /* blocks that executed in the current interval */
};

char out[512];
static struct stream streams[STREAMS];

FILE *create(const char *suffix) {
    char path[600];
    FILE *file;
    snprintf(path, sizeof path, "%s%s", out, suffix);
    file = fopen(path, "w");
    if (file == NULL)
        stop("cannot create its output");
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    return file;
}

void open_stream(unsigned which, const char *suffix) {
    streams[which].file = create(suffix);
}

void count_in(unsigned which, struct block *block) {
    struct stream *stream = &streams[which];
    if (block->counts[which]++ != 0)
        return;
    stream->touched = grown(stream->touched, &stream->touched_room, stream->touched_count + 1, sizeof *stream->touched);
    stream->touched[stream->touched_count++] = block;
}

/* One line of a basic-block vector file, executions weighted by instructions. */
void write_vector(unsigned which) {
    struct stream *stream = &streams[which];
    if (stream->file == NULL)
        return;
    fputc('T', stream->file);
    for (uint64_t i = 0; i < stream->touched_count; i++) {
        struct block *block = stream->touched[i];
        fprintf(stream->file, ":%" PRIu64 ":%" PRIu64 " ", block->id, block->counts[which] * block->model.instructions);
        block->counts[which] = 0;
    }
    fputc('\n', stream->file);
    stream->touched_count = 0;
}

void close_streams(void) {
    for (unsigned which = 0; which < STREAMS; which++) {
        write_vector(which);
        if (streams[which].file != NULL)
            fclose(streams[which].file);
    }
}

void write_blocks(void) {
    FILE *file = create(".blocks");
    for (uint64_t id = 1; id <= block_count; id++)
        fprintf(file, "%" PRIu64 " %" PRIx64 " %" PRIx64 " %u %s\n", id, blocks[id]->model.pc, blocks[id]->offset,
                blocks[id]->model.instructions, blocks[id]->mapping ? blocks[id]->mapping->path : "-");
    fclose(file);
}

