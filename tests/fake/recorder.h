/* The CPU's device with what stands for CUDA graphs: while it records, operations are kept with their
 * arguments instead of run. Of the fake module and of the tests of runtime/graphs.c. */
#ifndef DTP_TESTS_RECORDER_H
#define DTP_TESTS_RECORDER_H

#include <string.h>

#include "runtime/device/graphs_ops.h"

enum { RECORDER_OPS = 1 << 14, RECORDER_BYTES = 256 };

static struct {
    struct recorded {
        enum dtp_op op;
        _Alignas(8) char args[RECORDER_BYTES];
    } kept[RECORDER_OPS];
    int nkept;
    struct {
        int first, n;
    } graph[DTP_DEV_GRAPHS];
    bool recording;
    int ran, replays; /* operations that ran outside of graphs; replays */
    enum dtp_status failed;
    struct dtp_err failure; /* failure of a collective in a graph */
} recorder;

static bool recorder_keep(enum dtp_op op, const void *args) {
    if (recorder.recording && recorder.nkept < RECORDER_OPS) {
        struct recorded *x = &recorder.kept[recorder.nkept++];
        x->op = op;
        memcpy(x->args, args, dtp_op_rows[op].size);
    }
    return recorder.recording;
}

static void recorder_put(struct dtp_dev *d, enum dtp_op op, const void *args) {
    if (recorder_keep(op, args))
        return;
    recorder.ran++;
    (void)dtp_op_rows[op].run(dtp_cpu_dev_ops(), d, args, NULL);
}

#define RECORDER_PUT(name, type)                                                                   \
    static void recorder_##name(struct dtp_dev *d, const struct type *x) {                         \
        recorder_put(d, DTP_OP_##name, x);                                                         \
    }
DTP_GRAPHS_STRUCT_OPS(RECORDER_PUT)

#define RECORDER_PUT_WORDS(name, takes, ...)                                                       \
    static void recorder_##name takes {                                                            \
        recorder_put(d, DTP_OP_##name, &(struct dtp_##name##_args){__VA_ARGS__});                  \
    }
DTP_GRAPHS_WORD_OPS(RECORDER_PUT_WORDS)

static int recorder_record(struct dtp_dev *d, int graph, bool on) {
    (void)d;
    recorder.recording = on;
    if (on)
        recorder.graph[graph].first = recorder.nkept;
    recorder.graph[graph].n = recorder.nkept - recorder.graph[graph].first;
    return on ? 1 : recorder.graph[graph].n;
}

static void recorder_replay(struct dtp_dev *d, int graph) {
    const struct recorded *x = &recorder.kept[recorder.graph[graph].first];
    for (int i = 0; i < recorder.graph[graph].n && recorder.failed == DTP_OK; i++, x++)
        recorder.failed = dtp_op_rows[x->op].run(dtp_cpu_dev_ops(), d, x->args, &recorder.failure);
    recorder.replays++;
}

static void recorder_forget(struct dtp_dev *d) {
    (void)d;
    memset(recorder.graph, 0, sizeof recorder.graph);
    recorder.nkept = 0;
}

static void recorder_table(struct dtp_dev_ops *ops) {
#define RECORDER_OWN(name, type) ops->name = recorder_##name;
    DTP_GRAPHS_OPS(RECORDER_OWN)
    ops->record = recorder_record;
    ops->replay = recorder_replay;
    ops->forget_graphs = recorder_forget;
}

#endif
