/* Forks ranks, and reads what launchers say in the environment. */
#include "runtime/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/comm.h"
#include "runtime/os_linux.h"
#include "sim/base/text.h"

/* ---- environment ---- */

static const struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *also; /* must be set too: tells a job step from a mere allocation */
    const char *job;  /* variable that differs between jobs */
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
     "TORCHELASTIC_RUN_ID"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "PMIX_NAMESPACE"},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, "PMI_JOBID"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_STEP_ID", "SLURM_JOB_ID"},
    {.name = NULL},
};

/* Returns the tasks of a node; "4(x2),3" says 4, 4, 3 for three nodes. 0 means not said. */
static int tasks_of_node(const char *text, int node) {
    while (text && *text) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (strncmp(end, "(x", 2) == 0)
            times = strtol(end + 2, &end, 10);
        if (node < times)
            return tasks > 0 && tasks < INT32_MAX ? (int)tasks : 0;
        node -= (int)times;
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

/* Returns "node03" for "node[03-05,09],other". */
static const char *first_node(struct dtp_arena *a, const char *list) {
    size_t name = strcspn(list, "[,");
    if (list[name] != '[')
        return dtp_arena_strndup(a, list, name);
    const char *number = list + name + 1;
    return dtp_arena_printf(a, "%.*s%.*s", (int)name, list, (int)strcspn(number, "-,]"), number);
}

/* Hashes (FNV-1a) what no two jobs at one time share. */
static uint64_t job_of(const struct launcher *l, const struct dtp_endpoint *e) {
    char port[16];
    const char *id = getenv(l->job), *part[] = {e->master_host, port, id ? id : ""};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    snprintf(port, sizeof port, ":%d:", e->master_port);
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        for (const char *c = part[i]; *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash;
}

/* Reads a number from the environment; without it *out is the fallback, of which a negative one means not set. */
static enum dtp_status read_int(const char *name, int fallback, int *out, struct dtp_err *err) {
    const char *text = getenv(name);
    long v = fallback;
    if (text && *text)
        DTP_TRY(dtp_parse_long(text, name, 0, 1L << 24, &v, err));
    *out = (int)v;
    return DTP_OK;
}

static enum dtp_status read_launcher(struct dtp_arena *a, const struct launcher *l,
                                     struct dtp_endpoint *out, struct dtp_err *err) {
    enum { DEFAULT_PORT = 29511, MOST_PORT = 65535 };
    struct dtp_endpoint e = {.launcher = l->name, .timeout_s = 60};
    DTP_TRY(read_int(l->rank, -1, &e.rank, err));
    DTP_TRY(read_int(l->size, 1, &e.size, err));
    DTP_TRY(read_int(l->local_rank, e.rank, &e.local_rank, err));
    int node, per_node = e.size; /* srun tells tasks per node only if it was given them */
    DTP_TRY(read_int("SLURM_NODEID", 0, &node, err));
    if (strcmp(l->name, "slurm") == 0)
        per_node = tasks_of_node(getenv("SLURM_STEP_TASKS_PER_NODE"), node);
    DTP_TRY(read_int(l->local_size, per_node > 0 ? per_node : e.size, &e.local_size, err));
    DTP_TRY(read_int("MASTER_PORT", DEFAULT_PORT, &e.master_port, err));
    if (e.size < 1 || e.rank >= e.size)
        return dtp_fail(err, DTP_EINPUT, "%s says rank %d of %d (%s, %s)", l->name, e.rank, e.size,
                        l->rank, l->size);
    if (e.local_size < 1)
        return dtp_fail(err, DTP_EINPUT, "%s says %d ranks on this host (%s)", l->name,
                        e.local_size, l->local_size);
    const char *host = getenv("MASTER_ADDR"), *nodes = getenv("SLURM_STEP_NODELIST");
    bool several = e.local_size < e.size;
    if (!host && several && nodes)
        host = first_node(a, nodes);
    if (!host && several)
        return dtp_fail(err, DTP_EUSAGE,
                        "%s started ranks on several hosts: set MASTER_ADDR to the host of rank 0",
                        l->name);
    e.master_host = dtp_arena_strdup(a, host ? host : "127.0.0.1");
    if (e.master_port < 1 || e.master_port > MOST_PORT)
        return dtp_fail(err, DTP_EINPUT, "MASTER_PORT is %d, expected 1 .. 65535", e.master_port);
    e.job = job_of(l, &e);
    e.master_port += getenv("TORCHELASTIC_RUN_ID") != NULL; /* its agent listens at MASTER_PORT */
    if (e.master_port + DTP_MASTER_PORTS > MOST_PORT)
        e.master_port -= 2 * DTP_MASTER_PORTS;
    *out = e;
    return DTP_OK;
}

enum dtp_status dtp_launch_environment(struct dtp_arena *a, bool *found, struct dtp_endpoint *out,
                                       struct dtp_err *err) {
    *found = false;
    for (const struct launcher *l = launchers; l->name; l++) {
        if (!getenv(l->rank) || !getenv(l->size) || (l->also && !getenv(l->also)))
            continue;
        DTP_TRY(read_launcher(a, l, out, err));
        *found = true;
        return DTP_OK;
    }
    return DTP_OK;
}

void dtp_launch_cannot_start(double timeout_s, const struct dtp_err *why) {
    struct dtp_arena *a = dtp_arena_create("launch");
    struct dtp_endpoint e;
    bool found;
    if (dtp_launch_environment(a, &found, &e, NULL) == DTP_OK && found) {
        e.timeout_s = timeout_s;
        dtp_rendezvous_fail(&e, why);
    }
    dtp_arena_destroy(a);
}

/* ---- fork ---- */

struct children {
    const struct dtp_fork *f;
    pid_t *process;         /* [nranks], 0: the process has ended */
    enum dtp_status *ended; /* [nranks] status with which it ended */
    int alive;
    enum dtp_status status; /* worst so far */
    int64_t failed_ns;      /* time of the first failure */
    struct dtp_err *err;
};

#ifdef DTP_COVERAGE
void __gcov_dump(
    void); /* libgcov: what a process ran is written at exit(), which ranks do not reach */
#endif

static void run_child(const struct dtp_fork *f, int rank, int parent) {
    struct dtp_err err = {0};
    dtp_os_die_with_parent(parent);
    enum dtp_status status = f->run(f->context, rank, &err);
    if (status != DTP_OK && f->shared)
        dtp_comm_shm_abort(f->shared, rank, err.msg);
    fflush(NULL);
#ifdef DTP_COVERAGE
    __gcov_dump();
#endif
    _exit((int)status);
}

static void note_failure(struct children *c, enum dtp_status status) {
    if (c->status != DTP_OK)
        return;
    c->status = status;
    c->failed_ns = dtp_os_now_ns();
}

/* Tells the others at once that a child ended in another way than by returning. */
static void child_died(struct children *c, int rank, const char *how, int number) {
    char text[256];
    const char *doing = c->f->shared ? dtp_comm_shm_doing(c->f->shared, rank) : "";
    snprintf(text, sizeof text, "rank %d died in %s: %s %d%s%s%s", rank,
             doing[0] ? doing : "its start", how, number, how[0] == 's' ? " (" : "",
             how[0] == 's' ? strsignal(number) : "", how[0] == 's' ? ")" : "");
    if (c->f->shared)
        dtp_comm_shm_abort(c->f->shared, rank, text);
    else if (c->status == DTP_OK)
        (void)dtp_fail(c->err, DTP_ENO, "%s", text);
    note_failure(c, DTP_ENO);
}

static void child_ended(struct children *c, pid_t process, int how) {
    for (int r = 0; r < c->f->nranks; r++) {
        if (c->process[r] != process)
            continue;
        c->process[r] = 0;
        c->alive--;
        c->ended[r] = WIFEXITED(how) && WEXITSTATUS(how) <= DTP_ENOMEM
                          ? (enum dtp_status)WEXITSTATUS(how)
                          : DTP_ENO;
        if (WIFSIGNALED(how))
            child_died(c, r, "signal", WTERMSIG(how));
        else if (WIFEXITED(how) && WEXITSTATUS(how) > DTP_ENOMEM)
            child_died(c, r, "exit", WEXITSTATUS(how));
        else if (c->ended[r] != DTP_OK)
            note_failure(c, c->ended[r]);
    }
}

static void kill_all(struct children *c) {
    for (int r = 0; r < c->f->nranks; r++)
        if (c->process[r] > 0)
            (void)kill(c->process[r], SIGKILL);
}

/* Polls, since the parent must not wait for ever for a rank that hangs. Only the processes
 * forked here are waited for: the caller may have other children. */
static void wait_for_children(struct children *c) {
    const struct timespec nap = {.tv_nsec = (long)(2 * DTP_NS_PER_MS)};
    bool killed = false;
    while (c->alive > 0) {
        int before = c->alive;
        for (int r = 0; r < c->f->nranks; r++) {
            int how;
            if (c->process[r] > 0 && waitpid(c->process[r], &how, WNOHANG) == c->process[r])
                child_ended(c, c->process[r], how);
        }
        int rank;
        if (c->f->poll)
            c->f->poll(c->f->context);
        if (c->status == DTP_OK && c->f->shared && dtp_comm_shm_message(c->f->shared, &rank))
            note_failure(c, DTP_ENO);
        double since_s = (double)(dtp_os_now_ns() - c->failed_ns) / (double)DTP_NS_PER_S;
        if (c->status != DTP_OK && !killed && since_s > c->f->grace_s) {
            kill_all(c);
            killed = true;
        }
        if (c->alive == before)
            nanosleep(&nap, NULL);
    }
}

/* Reports the first failure: the text in shared memory, after the rank unless the text names one. */
static enum dtp_status report(const struct children *c, struct dtp_err *err) {
    int rank = -1;
    const char *text = c->f->shared ? dtp_comm_shm_message(c->f->shared, &rank) : NULL;
    if (c->status == DTP_OK)
        return DTP_OK;
    if (!text)
        return c->err && c->err->msg[0]
                   ? c->status
                   : dtp_fail(err, c->status, "a rank ended with status %d", (int)c->status);
    /* others may have ended before the rank that knows why */
    enum dtp_status status = c->ended[rank] != DTP_OK ? c->ended[rank] : c->status;
    if (strncmp(text, "rank ", 5) == 0 || strncmp(text, "all ranks", 9) == 0)
        return dtp_fail(err, status, "%s", text);
    return dtp_fail(err, status, "rank %d: %s", rank, text);
}

enum dtp_status dtp_launch_fork(const struct dtp_fork *f, struct dtp_err *err) {
    struct children c = {.f = f, .err = err};
    struct dtp_arena *a = dtp_arena_create("launch");
    int parent = (int)getpid();
    c.process = DTP_NEW(a, pid_t, (size_t)f->nranks);
    c.ended = DTP_NEW(a, enum dtp_status, (size_t)f->nranks);
    fflush(NULL); /* else the children would print the buffers again */
    for (int r = 0; r < f->nranks; r++) {
        pid_t p = fork();
        if (p == 0)
            run_child(f, r, parent);
        if (p < 0) {
            (void)dtp_fail(err, DTP_ENOMEM, "cannot fork rank %d: %s", r, strerror(errno));
            note_failure(&c, DTP_ENOMEM);
            if (f->shared)
                dtp_comm_shm_abort(f->shared, r, err ? err->msg : "cannot fork");
            break;
        }
        c.process[r] = p;
        c.alive++;
    }
    wait_for_children(&c);
    enum dtp_status status = report(&c, err);
    dtp_arena_destroy(a);
    return status;
}
