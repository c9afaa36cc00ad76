/* suites.h: what the main() of every CUnit program does with its suites. */
#ifndef DTP_TESTS_SUITES_H
#define DTP_TESTS_SUITES_H

#include <CUnit/Basic.h>

/* Runs the suites and prints the summary. Returns the exit status: 0 if nothing failed. */
static inline int run_suites(CU_SuiteInfo *suites) {
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
    CU_cleanup_registry();
    return failures ? 1 : 0;
}

#endif
