/* Messages through slots of shared memory. */
#include <string.h>

#include "runtime/comm_shm.h"

static struct dtp_box *box_of(const struct dtp_shm *s, int rank) {
    return (struct dtp_box *)(void *)(s->memory + s->layout.boxes_at +
                                      (uint64_t)rank * s->layout.box_bytes);
}

static char *data_of(const struct dtp_shm *s, int rank, int slot) {
    uint64_t index = (uint64_t)rank * (uint64_t)s->config.nmessages + (uint64_t)slot;
    return s->memory + s->layout.data_at + index * s->layout.slot_bytes;
}

static int find_free(const struct dtp_shm *s, struct dtp_box *box) {
    for (int i = 0; i < s->config.nmessages; i++)
        if (atomic_load(&box->slot[i].state) == DTP_SLOT_FREE)
            return i;
    return -1;
}

static int find_message(const struct dtp_shm *s, struct dtp_box *box, uint64_t tag) {
    for (int i = 0; i < s->config.nmessages; i++)
        if (atomic_load(&box->slot[i].state) == DTP_SLOT_FULL && box->slot[i].to == s->comm.rank &&
            box->slot[i].tag == tag)
            return i;
    return -1;
}

static enum dtp_status too_long(const struct dtp_shm *s, uint64_t bytes, struct dtp_err *err) {
    return dtp_fail(err, DTP_EINPUT, "rank %d: a message of %llu bytes, slots hold %llu",
                    s->comm.rank, (unsigned long long)bytes,
                    (unsigned long long)s->layout.slot_bytes);
}

enum dtp_status dtp_shm_send(struct dtp_comm *c, enum dtp_stream stream, const void *x,
                             uint64_t bytes, int to, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct dtp_shm *s = (struct dtp_shm *)c;
    struct dtp_box *box = box_of(s, c->rank);
    if (bytes > s->layout.slot_bytes)
        return too_long(s, bytes, err);
    int i;
    for (;;) {
        unsigned seen = atomic_load(&box->freed.value);
        if ((i = find_free(s, box)) >= 0)
            break;
        DTP_TRY(dtp_shm_wait(s, &box->freed, seen, err));
    }
    struct dtp_slot *slot = &box->slot[i];
    memcpy(data_of(s, c->rank, i), x, (size_t)bytes);
    slot->to = to;
    slot->tag = tag;
    slot->bytes = bytes;
    atomic_store(&slot->state, DTP_SLOT_FULL);
    dtp_shm_open_gate(&box->posted);
    return DTP_OK;
}

enum dtp_status dtp_shm_recv(struct dtp_comm *c, enum dtp_stream stream, void *x, uint64_t bytes,
                             int from, uint64_t tag, struct dtp_err *err) {
    (void)stream;
    struct dtp_shm *s = (struct dtp_shm *)c;
    struct dtp_box *box = box_of(s, from);
    int i;
    for (;;) {
        unsigned seen = atomic_load(&box->posted.value);
        if ((i = find_message(s, box, tag)) >= 0)
            break;
        DTP_TRY(dtp_shm_wait(s, &box->posted, seen, err));
    }
    struct dtp_slot *slot = &box->slot[i];
    if (slot->bytes != bytes)
        return dtp_fail(err, DTP_EINPUT, "rank %d expects %llu bytes from rank %d, which sent %llu",
                        c->rank, (unsigned long long)bytes, from, (unsigned long long)slot->bytes);
    memcpy(x, data_of(s, from, i), (size_t)bytes);
    atomic_store(&slot->state, DTP_SLOT_FREE);
    dtp_shm_open_gate(&box->freed);
    return DTP_OK;
}
