#include "sim/base/json.h"
#include "sim/base/text.h"
#include "traces/tasks/tasks_private.h"

static void put_number(FILE *f, double v, bool known) {
    char text[32];
    fprintf(f, "%s,", known ? dtp_double_text(v, text, sizeof text) : "");
}

enum dtp_status tasks_write_csv(struct dtp_arena *a, FILE *f, const struct dtp_tasks *t,
                                struct dtp_err *err) {
    (void)err;
    fputs("id,rank,stream,name,category,class,step,microbatch,chunk,part,start_s,end_s,duration_s,"
          "gap_s,collective,bytes,group_size,peer,shape,flops,after\n",
          f);
    for (uint32_t i = 0; i < t->ntasks; i++) {
        const struct dtp_tasks_task *k = &t->task[i];
        bool comm = k->class == DTP_CLASS_COMM;
        fprintf(f, "%u,%d,", i, k->rank);
        dtp_csv_put(f, k->stream, false);
        dtp_csv_put(f, k->name, false);
        dtp_csv_put(f, tasks_category(k), false);
        fprintf(f, "%s,%d,", dtp_task_class_names[k->class], k->step);
        put_number(f, k->microbatch, k->microbatch >= 0);
        put_number(f, k->chunk, k->chunk >= 0);
        put_number(f, k->part, k->part >= 0);
        put_number(f, k->start_s, true);
        put_number(f, k->end_s, true);
        put_number(f, k->end_s - k->start_s, true);
        put_number(f, k->gap_s, true);
        fprintf(f, "%s,", comm ? dtp_comm_op_name[k->op] : "");
        put_number(f, (double)k->bytes, comm && k->bytes > 0);
        put_number(f, k->group_size, k->group_size > 0);
        put_number(f, k->peer, k->peer >= 0);
        dtp_csv_put(f, k->shape ? k->shape : "", false);
        put_number(f, k->flops, k->flops > 0);
        struct dtp_str after = {.a = a};
        for (uint32_t d = 0; d < k->ndeps; d++)
            dtp_str_printf(&after, "%s%u", d ? " " : "", t->dep[k->first_dep + d]);
        dtp_csv_put(f, after.at ? after.at : "", true);
    }
    return DTP_OK;
}
