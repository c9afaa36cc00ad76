/* Option tables: parsing, messages, help, manual, completion; the options of a plan's fields. */
#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cli/cli.h"
#include "tests/suites.h"

struct values {
    bool flag;
    const char *state, *text, *names;
    int number, choice;
    uint64_t bytes;
    double count, real;
};

static const char *const colors[] = {"red", "green", NULL};
static const char *const farben[] = {"rot", "gruen"};
#define AT(field) offsetof(struct values, field)
static const struct dtp_option table[] = {
    {"flag", DTP_OPT_FLAG, 'F', AT(flag), .help = "a flag"},
    {"state", DTP_OPT_SWITCH, 0, AT(state), .aliases = "st stav", .help = "a switch"},
    {"text", DTP_OPT_STRING, 't', AT(text), .value = "WORDS", .number = "words",
     .help = "some text"},
    {"number", DTP_OPT_INT, 'n', AT(number), .value = "N", .min = 1, .max = 9, .help = "1 to 9"},
    {"choice", DTP_OPT_CHOICE, 0, AT(choice), .value = "C", .names = colors, .same = farben,
     .help = "a color"},
    {"bytes", DTP_OPT_BYTES, 0, AT(bytes), .value = "B", .min = 1024, .help = "a size"},
    {"count", DTP_OPT_COUNT, 0, AT(count), .value = "N", .max = 1e6, .help = "a count"},
    {"real", DTP_OPT_DOUBLE, 0, AT(real), .value = "X", .help = "a number"},
    {0}};

static struct dtp_arena *arena;

enum { MOST = 16 };

static enum dtp_status parse(const char *line, struct values *v, const char **args, int *nargs,
                             struct dtp_err *err) {
    char *argv[MOST], *copy = dtp_arena_strdup(arena, line);
    int argc = 0;
    for (char *word = strtok(copy, " "); word && argc < MOST; word = strtok(NULL, " "))
        argv[argc++] = word;
    *v = (struct values){0};
    struct dtp_option_set set = {"Options", table, v};
    return dtp_options_parse(arena, &set, 1, argc, argv, args, nargs, err);
}

static void test_kinds(void) {
    struct values v;
    struct dtp_err err = {0};
    const char *args[MOST];
    int n;
    CU_ASSERT_EQUAL(parse("--flag --text=abc -n 7 --choice green --bytes 2GiB --count 1.5k --real "
                          "2.5 one --state two",
                          &v, args, &n, &err),
                    DTP_OK);
    CU_ASSERT(v.flag);
    CU_ASSERT_STRING_EQUAL(v.text, "abc");
    CU_ASSERT_EQUAL(v.number, 7);
    CU_ASSERT_EQUAL(v.choice, 1);
    CU_ASSERT_EQUAL(v.bytes, (uint64_t)2 << 30);
    CU_ASSERT_DOUBLE_EQUAL(v.count, 1500, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(v.real, 2.5, 1e-12);
    CU_ASSERT_STRING_EQUAL(v.state, "on");
    CU_ASSERT_EQUAL(n, 2);
    CU_ASSERT_STRING_EQUAL(args[0], "one");
    CU_ASSERT_STRING_EQUAL(args[1], "two");
}

static void test_forms(void) {
    struct values v;
    const char *args[MOST];
    int n;
    CU_ASSERT_EQUAL(parse("-n7 -F --no-flag", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_EQUAL(v.number, 7);
    CU_ASSERT(!v.flag);
    CU_ASSERT_EQUAL(parse("--no-state", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_STRING_EQUAL(v.state, "off");
    CU_ASSERT_EQUAL(parse("--st true", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_STRING_EQUAL(v.state, "true");
    CU_ASSERT_EQUAL(parse("--stav off", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_STRING_EQUAL(v.state, "off");
    CU_ASSERT_EQUAL(parse("--choice GREEN", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_EQUAL(v.choice, 1);
    CU_ASSERT_EQUAL(parse("--choice Gruen", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_EQUAL(v.choice, 1);
    CU_ASSERT_EQUAL(parse("--state=false x", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_STRING_EQUAL(v.state, "false");
    CU_ASSERT_EQUAL(n, 1);
    CU_ASSERT_EQUAL(parse("--num 3", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_EQUAL(v.number, 3);
    CU_ASSERT_EQUAL(parse("-- --flag -n", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT(!v.flag);
    CU_ASSERT_EQUAL(n, 2);
    CU_ASSERT_EQUAL(parse("-", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_EQUAL(n, 1);
    CU_ASSERT_EQUAL(parse("--text -1", &v, args, &n, NULL), DTP_OK);
    CU_ASSERT_STRING_EQUAL(v.text, "-1");
}

static void test_errors(void) {
    const struct {
        const char *line, *says;
    } cases[] = {{"--numbr 3", "did you mean --number"},
                 {"--xyzzy", "--help"},
                 {"-q", "-q"},
                 {"--number", "needs a value"},
                 {"--number --flag", "needs a value"},
                 {"--number 10", "from 1 to 9"},
                 {"--number x", "--number"},
                 {"--flag=1", "takes no value"},
                 {"--choice gren", "\"green\""},
                 {"--text 64", "expected words"},
                 {"--bytes 3XB", "--bytes"},
                 {"--bytes 80", "such as 80GiB"},
                 {"--count 2M", "1e+06 at most"},
                 {"--stavv", "did you mean --state?"},
                 {"--gradient_checkpointing", "say --recompute full"},
                 {"--te", "needs a value"},
                 {"--cou", "needs a value"},
                 {"--c 1", "unknown option"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct values v;
        struct dtp_err err = {0};
        const char *args[MOST];
        int n;
        CU_ASSERT_EQUAL(parse(cases[i].line, &v, args, &n, &err), DTP_EUSAGE);
        CU_ASSERT_EQUAL(err.status, DTP_EUSAGE);
        if (!strstr(err.msg, cases[i].says))
            printf("\n  \"%s\": found \"%s\", expected \"%s\"\n", cases[i].line, err.msg,
                   cases[i].says);
        CU_ASSERT(strstr(err.msg, cases[i].says) != NULL);
    }
}

/* ---- what is made from the tables ---- */

static char *printed(void (*print)(FILE *)) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    print(f);
    fclose(f);
    char *copy = dtp_arena_strdup(arena, text);
    free(text);
    return copy;
}

static void print_help(FILE *f) {
    for (int i = 0; dtp_verbs[i]; i++)
        dtp_help_verb(f, dtp_verbs[i], 80);
}
static void print_all(FILE *f) {
    dtp_help_all(f, 80);
}
static void print_bash(FILE *f) {
    CU_ASSERT_EQUAL(dtp_help_completions(f, "bash", NULL), DTP_OK);
}

/* Each option of each verb stands in help, manual and completion. */
static void test_generated(void) {
    char *help = printed(print_help), *man = printed(dtp_help_man), *bash = printed(print_bash);
    char *all = printed(print_all), dashed[128], escaped[256];
    for (int i = 0; dtp_verbs[i]; i++) {
        struct dtp_option_set sets[DTP_MOST_SETS];
        size_t n = dtp_verb_sets(dtp_verbs[i], NULL, NULL, sets);
        CU_ASSERT(strstr(all, dtp_verbs[i]->name) != NULL);
        for (size_t s = 0; s < n; s++)
            for (const struct dtp_option *o = sets[s].options; o && o->name; o++) {
                snprintf(dashed, sizeof dashed, "%s", o->name);
                size_t k = 0;
                for (const char *c = dashed; *c; c++)
                    k += (size_t)snprintf(escaped + k, sizeof escaped - k, "%s%c",
                                          *c == '-' ? "\\" : "", *c);
                CU_ASSERT(strstr(help, dashed) != NULL);
                CU_ASSERT(strstr(man, escaped) != NULL);
                CU_ASSERT(strstr(bash, dashed) != NULL);
                CU_ASSERT(o->help != NULL && o->help[strlen(o->help) - 1] != '.');
            }
    }
    struct dtp_err err = {0};
    CU_ASSERT_EQUAL(dtp_help_completions(stdout, "fsh", &err), DTP_EUSAGE);
}

/* Whether one of the names that a answers to is one of b. */
static bool share_name(const struct dtp_option *a, const struct dtp_option *b) {
    char *left = dtp_arena_printf(arena, "%s %s", a->name, a->aliases ? a->aliases : "");
    const char *right = dtp_arena_printf(arena, " %s %s ", b->name, b->aliases ? b->aliases : "");
    for (char *name = strtok(left, " "); name; name = strtok(NULL, " "))
        if (strstr(right, dtp_arena_printf(arena, " %s ", name)))
            return true;
    return false;
}

/* No verb has two options of one name, alias or letter, and what another tool's option is answered with
 * is nowhere an option. */
static void test_no_doubles(void) {
    for (int i = 0; dtp_verbs[i]; i++) {
        struct dtp_option_set sets[DTP_MOST_SETS];
        const struct dtp_option *all[256];
        size_t n = dtp_verb_sets(dtp_verbs[i], NULL, NULL, sets), count = 0;
        for (size_t s = 0; s < n; s++)
            for (const struct dtp_option *o = sets[s].options; o && o->name; o++)
                all[count++] = o;
        for (size_t a = 0; a < count; a++)
            for (size_t b = 0; b < a; b++) {
                if (share_name(all[a], all[b]))
                    printf("\n  %s has --%s twice\n", dtp_verbs[i]->name, all[a]->name);
                CU_ASSERT(!share_name(all[a], all[b]));
                CU_ASSERT(all[a]->letter == 0 || all[a]->letter != all[b]->letter);
            }
    }
}

/* Every field of a plan can be given: dtp_plan_flags() writes options that parse. */
static void test_plan_fields(void) {
    struct dtp_option_set sets[DTP_MOST_SETS];
    size_t n = dtp_verb_sets(dtp_verb_find("simulate"), NULL, NULL, sets);
    for (const struct dtp_field *f = dtp_plan_fields; f->name; f++) {
        char option[64];
        bool found = false;
        snprintf(option, sizeof option, "%s", f->name);
        for (char *c = option; *c; c++)
            *c = *c == '_' ? '-' : *c;
        for (size_t s = 0; s < n; s++)
            for (const struct dtp_option *o = sets[s].options; o && o->name; o++)
                found = found || strcmp(o->name, option) == 0 ||
                        (o->aliases && strstr(o->aliases, option));
        if (!found)
            printf("\n  no option --%s\n", option);
        CU_ASSERT(found);
    }
}

int main(void) {
    CU_TestInfo tests[] = {{"kinds of values", test_kinds},
                           {"forms of options", test_forms},
                           {"errors", test_errors},
                           {"help, manual, completion", test_generated},
                           {"no option twice", test_no_doubles},
                           {"an option for each field of a plan", test_plan_fields},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"options", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    arena = dtp_arena_create("test");
    int status = run_suites(suites);
    dtp_arena_destroy(arena);
    return status;
}
