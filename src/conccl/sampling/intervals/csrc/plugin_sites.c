/* Part of the QEMU plugin: sites, the instructions whose executions are counted, and when their events come. */
#include "plugin_parts.h"

#include <string.h>

#define BRANCH_BYTES 6 /* of a conditional branch with a displacement of 4 */

static int belongs(uint64_t event, const struct site *site) {
    return events[event].site == (uint64_t)(site - sites);
}

void find_next_event(struct site *site) {
    site->next = ~0ull;
    for (uint64_t i = 0; i < event_count; i++)
        if (belongs(i, site) && events[i].count > site->executed && events[i].count < site->next)
            site->next = events[i].count;
}

static void reach_site(struct site *site) {
    if (++site->executed < site->next || is_child())
        return;
    for (uint64_t i = 0; i < event_count; i++)
        if (belongs(i, site) && events[i].count == site->executed)
            reach_event(i);
    find_next_event(site);
}

static void execute_site(unsigned vcpu, void *data) {
    struct site *site = data;
    (void)vcpu;
    if (site->kind == AGENT_BRANCH)
        site->decided = 1;
    else
        reach_site(site);
}

/* The block that a counted branch leads to begins; it may be entered from elsewhere. */
static void enter_target(unsigned vcpu, void *data) {
    struct site *site = data;
    (void)vcpu;
    if (site->decided)
        reach_site(site);
    site->decided = 0;
}

static void pass_by(unsigned vcpu, void *data) {
    (void)vcpu;
    ((struct site *)data)->decided = 0;
}

static void hook_branch(struct qemu_plugin_tb *tb, const struct block *block, struct site *site, uint64_t bias) {
    if (site->target != 0 && block->model.pc == site->target + bias)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, enter_target, QEMU_NO_REGISTERS, site);
    else if (block->model.pc == site->offset + BRANCH_BYTES + bias)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, pass_by, QEMU_NO_REGISTERS, site);
}

void hook_sites(struct qemu_plugin_tb *tb, const struct block *block) {
    for (uint64_t s = 0; s < site_count; s++) {
        struct site *site = &sites[s];
        uint64_t inside = site->offset - block->offset;
        if (strcmp(site->path, block->mapping->path) != 0)
            continue;
        if (site->kind == AGENT_BRANCH)
            hook_branch(tb, block, site, block->model.pc - block->offset);
        for (uint32_t i = 0; inside < block->size && i < block->model.instructions; i++)
            if (block->starts[i] == inside)
                qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, i), execute_site, QEMU_NO_REGISTERS, site);
    }
}
