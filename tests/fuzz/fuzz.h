/* fuzz.h: what a fuzz target is: one function that survives any bytes. libFuzzer and AFL++ call it
 * with bytes they invent; corpus_main.c calls it with each file of a corpus, in every build. A target
 * aborts (and so reports a finding) where an invariant of the reader is broken. */
#ifndef DTP_TESTS_FUZZ_FUZZ_H
#define DTP_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
