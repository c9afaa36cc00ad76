/* main.c: finds the verb, parses the options of its groups, runs it, prints what went wrong. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "planner/cli/timeline_file.h"
#include "planner/cli/cli.h"
#include "sim/base/text.h"

static enum dtp_status find_verb(const char *name, const struct dtp_verb **out,
                                 struct dtp_err *err) {
    enum { MOST = 64 };
    const char *names[MOST];
    size_t n = 0;
    *out = dtp_verb_find(name);
    if (*out)
        return DTP_OK;
    for (; n < MOST && dtp_verbs[n]; n++)
        names[n] = dtp_verbs[n]->name;
    const char *say = dtp_command_elsewhere(name);
    if (say)
        return dtp_fail(err, DTP_EUSAGE, "unknown command \"%s\"; say dtplan %s", name, say);
    return dtp_unknown_name(err, DTP_EUSAGE, "command", name, names, n, "dtplan --help");
}

/* --help, --version, --man, --man-formats and --completions; true when one was asked for. */
static bool informs(struct dtp_cli *cli, bool verb_given, enum dtp_status *status,
                    struct dtp_err *err) {
    const struct dtp_args *args = &cli->args;
    FILE *f = cli->out.file;
    *status = DTP_OK;
    if (args->help && verb_given)
        dtp_help_verb(f, cli->verb, cli->out.width);
    else if (args->help)
        dtp_help_all(f, cli->out.width);
    else if (args->version)
        fprintf(f, "dtplan %s\n", DTP_VERSION);
    else if (args->man)
        dtp_help_man(f);
    else if (args->man_formats)
        dtp_help_man_formats(f);
    else if (args->completions)
        *status = dtp_help_completions(f, args->completions, err);
    else
        return false;
    return true;
}

static enum dtp_status run(struct dtp_cli *cli, int argc, char **argv, struct dtp_err *err) {
    if (argc < 2) {
        dtp_help_all(stderr, dtp_term_open(stderr, 0).width);
        return DTP_EUSAGE;
    }
    bool verb_given = argv[1][0] != '-';
    cli->verb = dtp_verbs[0];
    if (verb_given)
        DTP_TRY(find_verb(argv[1], &cli->verb, err));
    cli->args.ask.dtype = cli->args.ask.attention = -1;
    cli->own = dtp_arena_alloc(cli->a, 1, cli->verb->own_size + 1);
    if (cli->verb->defaults)
        cli->verb->defaults(cli->own);
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t nsets = dtp_verb_sets(cli->verb, &cli->args, cli->own, sets);
    cli->arg = DTP_NEW(cli->a, const char *, (size_t)argc);
    int skip = verb_given ? 2 : 1;
    DTP_TRY(dtp_options_parse(cli->a, sets, nsets, argc - skip, argv + skip, cli->arg, &cli->nargs,
                              err));
    cli->out = dtp_term_open(stdout, cli->args.color);
    cli->progress = isatty(STDERR_FILENO);
    enum dtp_status status;
    if (informs(cli, verb_given, &status, err))
        return status;
    if (cli->nargs < cli->verb->min_args)
        return dtp_fail(err, DTP_EUSAGE, "usage: dtplan %s", cli->verb->synopsis);
    if (cli->verb->max_args >= 0 && cli->nargs > cli->verb->max_args)
        return dtp_fail(err, DTP_EUSAGE, "unexpected \"%s\"; usage: dtplan %s",
                        cli->arg[cli->verb->max_args], cli->verb->synopsis);
    DTP_TRY(dtp_cli_check_timeline(cli, err));
    return cli->verb->run(cli, err);
}

/* If a standard stream is closed, the next file opened takes its number and receives what is printed; a socket
 * between ranks could be that file. The placeholder opened here can be neither read nor written. */
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
}

int main(int argc, char **argv) {
    struct dtp_err err = {.status = DTP_OK};
    hold_standard_streams();
    struct dtp_cli cli = {.a = dtp_arena_create("program")};
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, ranks would end unseen */
    dtp_file_out_guard();
    enum dtp_status status = run(&cli, argc, argv, &err);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("dtplan: cannot write to standard output\n", stderr);
        status = status == DTP_OK || status == DTP_ENO ? DTP_EINPUT : status;
    }
    if (status != DTP_OK && err.msg[0])
        fprintf(stderr, "dtplan: %s\n", err.msg);
    if (status == DTP_EUSAGE && err.msg[0])
        fputs("Try `dtplan --help`.\n", stderr);
    dtp_arena_destroy(cli.a);
    return (int)status;
}
