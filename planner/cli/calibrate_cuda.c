#include "planner/cli/calibrate_cuda.h"

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/calibrate.h"
#include "sim/base/text.h"

extern char **environ;

static const char program[] = "dtplan-calibrate-cuda", seconds[] = "200";
enum { PROGRAM_NO_GPU = 4, SHELL_NOT_FOUND = 127 };

/* Beside this program if it is there, else a bare name for $PATH. */
static const char *find_program(struct dtp_arena *a) {
    const char *given = getenv("DTPLAN_CALIBRATE_CUDA");
    if (given)
        return given;
    const char *own = dtp_program_folder(a);
    const char *beside = own ? dtp_arena_printf(a, "%s/%s", own, program) : program;
    return access(beside, X_OK) == 0 ? beside : program;
}

static enum dtp_status measure(struct dtp_cli *cli, const char *sweep, struct dtp_err *err) {
    const char *path = find_program(cli->a);
    const char *argv[] = {path, "--seconds", seconds, "--out", sweep, NULL};
    pid_t pid;
    int state, failed;

    /* posix_spawnp() takes char *const[] and changes none of it */
    union {
        const char **in;
        char **out;
    } arguments = {.in = argv};
    fflush(NULL);
    failed = posix_spawnp(&pid, path, NULL, NULL, arguments.out, environ);
    if (failed)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "%s: %s (it is built where nvcc is found; DTPLAN_CALIBRATE_CUDA names it)",
                        path, strerror(failed));
    if (waitpid(pid, &state, 0) != pid || !WIFEXITED(state))
        return dtp_fail(err, DTP_ENO, "%s was killed", path);
    if (WEXITSTATUS(state) == SHELL_NOT_FOUND)
        return dtp_fail(err, DTP_EUNSUPPORTED, "%s cannot be run", path);
    if (WEXITSTATUS(state) == PROGRAM_NO_GPU)
        return dtp_fail(err, DTP_EUNSUPPORTED,
                        "no NVIDIA GPU: neither the driver nor a device was found");
    if (WEXITSTATUS(state) != 0)
        return dtp_fail(err, DTP_ENO, "%s: exit status %d", path, WEXITSTATUS(state));
    return DTP_OK;
}

/* The GPU file that calls this part by the name in the sweep. */
static enum dtp_status find_gpu(struct dtp_arena *a, const char *sweep, const char **out,
                                struct dtp_err *err) {
    const struct dtp_json *j;
    DTP_TRY(dtp_json_read_file(a, sweep, &j, err));
    return dtp_gpu_of_card(a, dtp_json_string(dtp_json_get(j, "gpu")), out, err);
}

enum dtp_status dtp_calibrate_cuda(struct dtp_cli *cli, const char *gpu, const char *out,
                                   struct dtp_err *err) {
    const char *stem = out ? out : gpu ? gpu : "gpu";
    const char *sweep = dtp_arena_printf(cli->a, "%s.sweep.json", stem);
    const char *const paths[] = {sweep};

    DTP_TRY(measure(cli, sweep, err));
    if (!gpu)
        DTP_TRY(find_gpu(cli->a, sweep, &gpu, err));
    if (!out)
        out = dtp_arena_printf(cli->a, "%s.json", gpu);
    struct dtp_calibrate_args args = {
        .paths = paths, .npaths = 1, .gpu = gpu, .out_path = out, .report = cli->out.file};
    DTP_TRY(dtp_calibrate_from_files(cli->a, &args, err));
    fprintf(cli->out.file,
            "Not covered: fused attention (calibrate_torch.py times PyTorch's), "
            "collectives (%s --gpus N), FP8 where the file holds it fixed.\n",
            program);
    return DTP_OK;
}
