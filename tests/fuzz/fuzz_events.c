/* Event files of TensorBoard. */
#define READ dtp_events_read
#include "tests/fuzz/fuzz_scalars.h"
