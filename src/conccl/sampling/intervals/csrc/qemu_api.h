/* What the plugin uses of QEMU's plugin interface, version 1 (QEMU 4.2 to 8.2).
 *
 * Distributions ship qemu-user without the header; these are the calls by name and type, as the interface's
 * documentation states them.
 */
#ifndef CONCCL_QEMU_API_H
#define CONCCL_QEMU_API_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

struct qemu_info { /* the beginning of qemu_info_t */
    const char *target_name;
    struct {
        int min, cur;
    } version;
};

enum { QEMU_NO_REGISTERS = 0, QEMU_READS_AND_WRITES = 3, QEMU_INLINE_ADD = 0 };

typedef void (*qemu_simple_cb)(qemu_plugin_id_t);
typedef void (*qemu_exit_cb)(qemu_plugin_id_t, void *);
typedef void (*qemu_vcpu_cb)(qemu_plugin_id_t, unsigned vcpu);
typedef void (*qemu_translate_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*qemu_execute_cb)(unsigned vcpu, void *);
typedef void (*qemu_memory_cb)(unsigned vcpu, qemu_plugin_meminfo_t, uint64_t address, void *);
typedef void (*qemu_syscall_cb)(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t, uint64_t, uint64_t,
                                uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

void qemu_plugin_reset(qemu_plugin_id_t, qemu_simple_cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, qemu_exit_cb, void *);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t, qemu_vcpu_cb);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, qemu_syscall_cb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_translate_cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, qemu_execute_cb, int flags, void *);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int operation, void *, uint64_t addend);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, qemu_execute_cb, int flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, qemu_memory_cb, int flags, int rw, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
_Bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);

#endif
