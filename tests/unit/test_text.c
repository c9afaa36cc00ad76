/* Names, numbers for people, numbers from people, growing strings, files. */
#include "sim/base/text.h"
#include "tests/suites.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct dtp_arena *arena;
static struct dtp_err err;
static char folder[] = "/tmp/dtp_test_text_XXXXXX";

static const char *const models[] = {
    "gpt2",       "gpt175b",     "gpt530b",  "gpt1t",      "opt175b",      "llama2-7b",
    "llama2-70b", "llama3-8b",   "bert",     "llama3-70b", "mixtral-8x7b", "bloom176b",
    "vit",        "llama3-405b", "resnet50", "dbrx",       "pythia-12b",   "olmo2-7b",
    "mpt-7b",     "mpt-30b",     "phi4",     "olmo-7b",    "yi-34b"};
enum { NMODELS = sizeof models / sizeof *models };

/* ---- names ---- */

static void test_same(void) {
    CU_ASSERT(dtp_same_name("Meta-Llama-3 70B", "meta_llama3-70b"));
    CU_ASSERT(dtp_same_name("", "-") && dtp_same_name("a100", "A100"));
    CU_ASSERT(!dtp_same_name("gpt-1.3b", "gpt-13b"));
    CU_ASSERT(!dtp_same_name("h100", "h1000") && !dtp_same_name("h1000", "h100"));
}

static void test_nearest(void) {
    static const char *const cases[][2] = {
        {"gpt157b", "gpt175b"},        {"GPT175B", "gpt175b"},      {"gpt-175b", "gpt175b"},
        {"llama2-7", "llama2-7b"},     {"mixtral", "mixtral-8x7b"}, {"resnet", "resnet50"},
        {"lama3-405b", "llama3-405b"}, {"bert-large", "bert"},      {"405b", "llama3-405b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int at = dtp_nearest_name(cases[i][0], models, NMODELS);
        CU_ASSERT_FATAL(at >= 0);
        CU_ASSERT_STRING_EQUAL(models[at], cases[i][1]);
    }
    CU_ASSERT_EQUAL(dtp_nearest_name("zzzzzz", models, NMODELS), -1);
    CU_ASSERT_EQUAL(dtp_nearest_name("", models, NMODELS), -1);
    CU_ASSERT_EQUAL(dtp_nearest_name("gpt2", models, 0), -1);
}

static void test_long_names_do_not_overflow(void) {
    char name[5000];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const names[] = {name, "a"};
    CU_ASSERT_EQUAL(dtp_nearest_name(name, names, 2), 0);
    dtp_unknown_name(&err, DTP_EUSAGE, "model", name, names, 2, NULL);
    CU_ASSERT(strlen(err.msg) < sizeof err.msg);
}

static void test_unknown_name(void) {
    CU_ASSERT_EQUAL(dtp_unknown_name(&err, DTP_EINPUT, "model", "gpt157b", models, NMODELS, NULL),
                    DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "unknown model \"gpt157b\", did you mean \"gpt175b\"?");
    dtp_unknown_name(&err, DTP_EINPUT, "model", "llama2", models, NMODELS, NULL);
    CU_ASSERT_STRING_EQUAL(
        err.msg, "unknown model \"llama2\", did you mean \"llama2-7b\" or \"llama2-70b\"?");
    dtp_unknown_name(&err, DTP_EINPUT, "model", "zzzzzz", models, 3, "dtplan models");
    CU_ASSERT_STRING_EQUAL(err.msg,
                           "unknown model \"zzzzzz\", expected one of: gpt2, gpt175b, gpt530b");
    dtp_unknown_name(&err, DTP_EINPUT, "model", "zzzzzz", models, NMODELS, "dtplan models");
    CU_ASSERT_STRING_EQUAL(err.msg, "unknown model \"zzzzzz\"; `dtplan models` lists them");
}

/* ---- formatting ---- */

typedef const char *format_fn(double v, char *buf, size_t size);
struct format_case {
    format_fn *format;
    double v;
    const char *text;
};

static void test_format(void) {
    static const struct format_case cases[] = {
        {dtp_fmt_time, 0, "0 s"},
        {dtp_fmt_time, 25e-9, "25.0 ns"},
        {dtp_fmt_time, 12.34e-3, "12.3 ms"},
        {dtp_fmt_time, 0.9996, "1.00 s"},
        {dtp_fmt_time, 4.561, "4.56 s"},
        {dtp_fmt_time, 118.6, "119 s"},
        {dtp_fmt_time, 318.6, "319 s"},
        {dtp_fmt_time, 600, "10.0 min"},
        {dtp_fmt_time, 36 * 3600.0, "36.0 h"},
        {dtp_fmt_time, 3.2 * 86400, "3.2 days"},
        {dtp_fmt_bytes_gib, 71.3 * 1073741824, "71.3 GiB"},
        {dtp_fmt_bytes_gib, 512, "512 B"},
        {dtp_fmt_bytes_gib, 1048576, "1.0 MiB"},
        {dtp_fmt_bytes_si, 25e9, "25.0 GB"},
        {dtp_fmt_rate, 232.4e9, "232 GB/s"},
        {dtp_fmt_rate, 2.039e12, "2.04 TB/s"},
        {dtp_fmt_flops, 148.2e12, "148.2 TFLOP/s"},
        {dtp_fmt_flops, 1979e12, "1979.0 TFLOP/s"},
        {dtp_fmt_count, 174.6e9, "174.6B"},
        {dtp_fmt_count, 1.02e12, "1.02T"},
        {dtp_fmt_count, 52128, "52,128"},
        {dtp_fmt_count, 999, "999"},
        {dtp_fmt_count, -1234, "-1,234"},
        {dtp_fmt_count, 999999.9, "1.00M"},
        {dtp_fmt_count, 0, "0"},
        {dtp_fmt_percent, 0.0423, "4.2 %"},
        {dtp_fmt_percent, -0.5, "-50.0 %"},
        {dtp_fmt_time, INFINITY, "inf"},
        {dtp_fmt_rate, -INFINITY, "-inf"},
        {dtp_fmt_count, NAN, "nan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[32];
        CU_ASSERT_STRING_EQUAL(cases[i].format(cases[i].v, buf, sizeof buf), cases[i].text);
    }
}

static void test_format_fits_any_number(void) {
    static const double values[] = {1e-300, 1e300, -1e300, 1.7e308, 123456789012345678.0};
    static format_fn *const formats[] = {dtp_fmt_time,   dtp_fmt_bytes_gib, dtp_fmt_bytes_si,
                                         dtp_fmt_rate,   dtp_fmt_flops,     dtp_fmt_count,
                                         dtp_fmt_percent};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
            char buf[32];
            CU_ASSERT(strlen(formats[k](values[i], buf, sizeof buf)) < sizeof buf);
        }
}

/* ---- parsing ---- */

static void test_parse_bytes(void) {
    uint64_t v = 0;
    CU_ASSERT_EQUAL(dtp_parse_bytes("80GB", "--x", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, UINT64_C(80000000000));
    CU_ASSERT_EQUAL(dtp_parse_bytes("74.5 GiB", "--x", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, UINT64_C(79993765888));
    CU_ASSERT_EQUAL(dtp_parse_bytes("512m", "--x", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 512000000);
    CU_ASSERT_EQUAL(dtp_parse_bytes("1000", "--x", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 1000);
    static const char *const bad[] = {"",     "GB",  "-1",  "1e30", "80 GBB",
                                      "0x10", "nan", "inf", "1,5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_EQUAL(dtp_parse_bytes(bad[i], "--x", &v, &err), DTP_EUSAGE);
    CU_ASSERT_EQUAL(dtp_parse_bytes("GB", "a.csv:2: x", &v, &err), DTP_EINPUT);
    dtp_parse_bytes("80 QB", "--memory-limit", &v, &err);
    CU_ASSERT_STRING_EQUAL(
        err.msg, "--memory-limit: found \"80 QB\", expected bytes such as 80GB, 74.5GiB or 1000");
}

static void test_parse_time_and_count(void) {
    double v = 0;
    CU_ASSERT_EQUAL(dtp_parse_time("25us", "t", &v, &err), DTP_OK);
    CU_ASSERT_DOUBLE_EQUAL(v, 25e-6, 1e-18);
    CU_ASSERT_EQUAL(dtp_parse_time("2h", "t", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 7200);
    CU_ASSERT_EQUAL(dtp_parse_time("1.5", "t", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 1.5);
    CU_ASSERT_EQUAL(dtp_parse_time("5 weeks", "t", &v, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(dtp_parse_count("300B", "n", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 300e9);
    CU_ASSERT_EQUAL(dtp_parse_count("450k", "n", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 450000);
    CU_ASSERT_EQUAL(dtp_parse_count("1.5T", "n", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, 1.5e12);
    CU_ASSERT_EQUAL(dtp_parse_count("many", "n", &v, &err), DTP_EINPUT);
}

static void test_parse_plain_numbers(void) {
    long n = 0;
    double v = 0;
    CU_ASSERT_EQUAL(dtp_parse_long("-12", "n", -20, 20, &n, &err), DTP_OK);
    CU_ASSERT_EQUAL(n, -12);
    static const char *const bad[] = {"",  " 1", "1 ", "1.0", "21", "99999999999999999999",
                                      "x", "+-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_EQUAL(dtp_parse_long(bad[i], "n", -20, 20, &n, &err), DTP_EINPUT);
    CU_ASSERT_EQUAL(n, -12); /* an error leaves the value */
    dtp_parse_long("0", "--gpus", 1, 4096, &n, &err);
    CU_ASSERT_STRING_EQUAL(err.msg, "--gpus: found \"0\", expected an integer from 1 to 4096");
    CU_ASSERT_EQUAL(dtp_parse_double("-1.25e2", "x", &v, &err), DTP_OK);
    CU_ASSERT_EQUAL(v, -125);
    static const char *const no[] = {"", "0x1p3", "nan", "inf", "1e999", "1 2", ".", "e5", " 1"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CU_ASSERT_EQUAL(dtp_parse_double(no[i], "x", &v, &err), DTP_EINPUT);
}

/* ---- strings and files ---- */

static void test_growing_string(void) {
    struct dtp_str s = {.a = arena};
    for (int i = 0; i < 1000; i++)
        dtp_str_printf(&s, "%d,", i);
    CU_ASSERT_EQUAL(s.n, 10 * 2 + 90 * 3 + 900 * 4);
    CU_ASSERT_STRING_EQUAL(s.at + s.n - 8, "998,999,");
    dtp_str_printf(&s, "%2000s", "x");
    CU_ASSERT_EQUAL(s.n, 10 * 2 + 90 * 3 + 900 * 4 + 2000);
    dtp_str_addn(&s, "abc", 2);
    CU_ASSERT_STRING_EQUAL(s.at + s.n - 3, "xab");
    struct dtp_str words = {.a = arena};
    static const char *const word[] = {"a/b-1.json", "", "my model", "it's; $x"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        dtp_str_add_word(&words, word[i]);
        dtp_str_add(&words, " ");
    }
    CU_ASSERT_STRING_EQUAL(words.at, "a/b-1.json '' 'my model' 'it'\\''s; $x' ");
}

static void write_file(const char *path, const char *text) {
    struct dtp_file_out out;
    CU_ASSERT_EQUAL_FATAL(dtp_file_out_open(arena, path, &out, &err), DTP_OK);
    fputs(text, out.f);
    CU_ASSERT_EQUAL(dtp_file_out_commit(&out, &err), DTP_OK);
}

static void test_files_appear_whole(void) {
    const char *path = dtp_arena_printf(arena, "%s/x.txt", folder);
    const char *text;
    size_t n;
    write_file(path, "first");
    struct dtp_file_out out;
    CU_ASSERT_EQUAL_FATAL(dtp_file_out_open(arena, path, &out, &err), DTP_OK);
    fputs("second", out.f);
    CU_ASSERT_EQUAL(dtp_file_read(arena, path, 0, &text, &n, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(text, "first"); /* not committed yet */
    dtp_file_out_abort(&out);
    CU_ASSERT_EQUAL(dtp_file_read(arena, path, 0, &text, &n, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(text, "first");
    write_file(path, "third");
    CU_ASSERT_EQUAL(dtp_file_read(arena, path, 5, &text, &n, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(text, "third");
    CU_ASSERT_EQUAL(n, 5);
    CU_ASSERT_EQUAL(dtp_file_read(arena, path, 4, &text, &n, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "x.txt: larger than the limit of 4 bytes"));
    CU_ASSERT_EQUAL_FATAL(truncate(path, (off_t)1 << 40),
                          0); /* more than memory, all of it a hole */
    CU_ASSERT_EQUAL(dtp_file_read(arena, path, 1 << 20, &text, &n, &err), DTP_EINPUT);
    unlink(path);
}

/* Opens a file, lets a process end by the signal, the one that opened it or a fork of it, and tells how many
 * temporaries are left then. */
static size_t left_by(int number, bool fork_before_open) {
    const char *path = dtp_arena_printf(arena, "%s/cut.txt", folder);
    const char *const *names;
    struct dtp_file_out out;
    size_t n;
    int how;
    if (!fork_before_open)
        CU_ASSERT_EQUAL_FATAL(dtp_file_out_open(arena, path, &out, &err), DTP_OK);
    pid_t child = fork();
    if (child == 0) {
        dtp_file_out_guard();
        if (fork_before_open && dtp_file_out_open(arena, path, &out, &err) != DTP_OK)
            _exit(1);
        (void)raise(number);
        _exit(2);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &how, 0), child);
    CU_ASSERT(WIFSIGNALED(how) && WTERMSIG(how) == number);
    CU_ASSERT_EQUAL_FATAL(dtp_dir_list(arena, folder, ".tmp", &names, &n, &err), DTP_OK);
    if (!fork_before_open)
        dtp_file_out_abort(&out);
    return n;
}

static void test_signals_leave_nothing(void) {
    CU_ASSERT_EQUAL(left_by(SIGINT, true), 0);
    CU_ASSERT_EQUAL(left_by(SIGTERM, true), 0);
    CU_ASSERT_EQUAL(left_by(SIGHUP, true), 0);
    CU_ASSERT_EQUAL(left_by(SIGTERM, false), 1); /* it is still written by another process */
}

static void test_file_errors(void) {
    struct dtp_file_out out;
    const char *text;
    size_t n;
    CU_ASSERT_EQUAL(dtp_file_out_open(arena, "no/such/folder/x", &out, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "no/such/folder/x: cannot create: No such file or directory");
    CU_ASSERT_EQUAL(dtp_file_read(arena, folder, 0, &text, &n, &err), DTP_EINPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, "cannot read: Is a directory"));
    CU_ASSERT_EQUAL(dtp_file_out_open(arena, "/dev/full", &out, &err), DTP_OK);
    fputs("x", out.f);
    CU_ASSERT_EQUAL(dtp_file_out_commit(&out, &err), DTP_EINPUT);
    CU_ASSERT_STRING_EQUAL(err.msg, "/dev/full: cannot write: No space left on device");
}

static void test_symlink_stays(void) {
    const char *target = dtp_arena_printf(arena, "%s/target", folder);
    const char *link = dtp_arena_printf(arena, "%s/link", folder);
    const char *text;
    size_t n;
    write_file(target, "old");
    CU_ASSERT_EQUAL_FATAL(symlink("target", link), 0);
    write_file(link, "new");
    CU_ASSERT_EQUAL(dtp_file_read(arena, target, 0, &text, &n, &err), DTP_OK);
    CU_ASSERT_STRING_EQUAL(text, "new");
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(lstat(link, &st), 0);
    CU_ASSERT(S_ISLNK(st.st_mode));
    unlink(link);
    unlink(target);
}

static void test_folder_list(void) {
    static const char *const files[] = {"b.json", "a.json", "c.txt", ".hidden.json"};
    for (int i = 0; i < 4; i++)
        write_file(dtp_arena_printf(arena, "%s/%s", folder, files[i]), "{}");
    mkdir(dtp_arena_printf(arena, "%s/d.json", folder), 0777);
    const char *const *names;
    size_t n;
    CU_ASSERT_EQUAL_FATAL(dtp_dir_list(arena, folder, ".json", &names, &n, &err), DTP_OK);
    CU_ASSERT_EQUAL_FATAL(n, 2);
    CU_ASSERT_STRING_EQUAL(names[0], "a");
    CU_ASSERT_STRING_EQUAL(names[1], "b");
    for (int i = 0; i < 30; i++) { /* 32 in all: what the list holds at first */
        write_file(dtp_arena_printf(arena, "%s/e%02d.json", folder, i), "{}");
        CU_ASSERT_EQUAL_FATAL(dtp_dir_list(arena, folder, ".json", &names, &n, &err), DTP_OK);
        CU_ASSERT(n == (size_t)i + 3 && names[n] == NULL);
    }
    CU_ASSERT_EQUAL(dtp_dir_list(arena, "no/such", ".json", &names, &n, &err), DTP_EINPUT);
    for (int i = 0; i < 30; i++)
        unlink(dtp_arena_printf(arena, "%s/e%02d.json", folder, i));
    rmdir(dtp_arena_printf(arena, "%s/d.json", folder));
    for (int i = 0; i < 4; i++)
        unlink(dtp_arena_printf(arena, "%s/%s", folder, files[i]));
}

static void test_data_path(void) {
    setenv("DTPLAN_DATA", "/some/where", 1);
    CU_ASSERT_STRING_EQUAL(dtp_data_path(arena, "hw/x.json"), "/some/where/hw/x.json");
    unsetenv("DTPLAN_DATA");
    /* the tests are not installed: the source tree holds the data */
    CU_ASSERT_EQUAL(access(dtp_data_path(arena, "sim/base/text.h"), R_OK), 0);
}

static int set_up(void) {
    arena = dtp_arena_create("test");
    return mkdtemp(folder) == NULL;
}

static int tear_down(void) {
    dtp_arena_destroy(arena);
    return rmdir(folder);
}

static CU_TestInfo tests[] = {
    {"same name", test_same},
    {"nearest name", test_nearest},
    {"long names", test_long_names_do_not_overflow},
    {"unknown name", test_unknown_name},
    {"format", test_format},
    {"format fits", test_format_fits_any_number},
    {"parse bytes", test_parse_bytes},
    {"parse time and count", test_parse_time_and_count},
    {"parse plain numbers", test_parse_plain_numbers},
    {"growing string", test_growing_string},
    {"files appear whole", test_files_appear_whole},
    {"signals leave no temporary", test_signals_leave_nothing},
    {"file errors", test_file_errors},
    {"a symlink stays", test_symlink_stays},
    {"folder list", test_folder_list},
    {"data path", test_data_path},
    CU_TEST_INFO_NULL,
};

int main(void) {
    CU_SuiteInfo suites[] = {{"text", set_up, tear_down, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
