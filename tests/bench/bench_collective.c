/* bench_collective: collective costs against measured sweeps, and the speed of one cost.
 *     bench_collective [DATA]             report; DATA: folder of the sweeps, ../shared/hw
 *     bench_collective DATA --fit FOLDER  writes the curves first (hw/curves) */
#include <stdio.h>
#include <string.h>

#include "hw/fit_curves.h"

int main(int argc, char **argv) {
    struct dtp_arena *a = dtp_arena_create("bench");
    struct dtp_err err = {0};
    const char *data = argc > 1 ? argv[1] : "../shared/hw";
    if (argc > 3 && strcmp(argv[2], "--fit") == 0 &&
        dtp_fit_curves(a, data, argv[3], stdout, &err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return err.status;
    }
    dtp_arena_destroy(a);
    return 0;
}
