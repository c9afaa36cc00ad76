/* Pictures: every usable point is drawn, texts are escaped, equal data give equal bytes. */
#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traces/tasks/plot.h"
#include "tests/suites.h"

static const char *const groups[] = {"a & b", "c<d"};
static const struct dtp_plot_point points[] = {{1, 1.1, 0, "one"},
                                               {10, 9, 1, "<two>"},
                                               {100, 50, 1, NULL},
                                               {0, 1, 0, "none"},
                                               {1, INFINITY, 0, "none"}};
static const struct dtp_plot plot = {"t > 0", "step time, s", points, 5, groups, 2};

static char *draw(void (*fn)(FILE *, const struct dtp_plot *), const struct dtp_plot *p) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_FATAL(f != NULL);
    fn(f, p);
    fclose(f);
    return text;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

static void test_scatter(void) {
    char *a = draw(dtp_plot_scatter, &plot), *b = draw(dtp_plot_scatter, &plot);
    CU_ASSERT_STRING_EQUAL(a, b);
    CU_ASSERT(count(a, "r=\"2.5\"") == 3); /* points */
    CU_ASSERT(count(a, "r=\"4\"") == 2);   /* legend */
    CU_ASSERT(strstr(a, "a &amp; b") && strstr(a, "c&lt;d") && strstr(a, "&lt;two&gt;"));
    CU_ASSERT(strstr(a, "t &gt; 0") && strstr(a, "+10.0 %") && !strstr(a, "nan") &&
              !strstr(a, "inf"));
    free(a);
    free(b);
}

static void test_errors(void) {
    char *a = draw(dtp_plot_errors, &plot);
    CU_ASSERT(count(a, "<title>1 runs") == 3);
    CU_ASSERT(count(a, "<rect x") == 40);
    free(a);
}

static void test_empty(void) {
    struct dtp_plot none = {.title = "nothing", .axis = "s"};
    char *a = draw(dtp_plot_scatter, &none), *b = draw(dtp_plot_errors, &none);
    CU_ASSERT(strstr(a, "</svg>") && strstr(b, "</svg>") && !strstr(a, "nan") && !strstr(b, "nan"));
    free(a);
    free(b);
}

int main(void) {
    CU_TestInfo tests[] = {{"scatter", test_scatter},
                           {"errors", test_errors},
                           {"no points", test_empty},
                           CU_TEST_INFO_NULL};
    CU_SuiteInfo suites[] = {{"plot", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    return run_suites(suites);
}
