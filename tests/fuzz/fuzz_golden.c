/* Golden values of Megatron. */
#define READ dtp_golden_read
#include "tests/fuzz/fuzz_scalars.h"
