/* labels_number.c: numbers as logs write them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "traces/formats/labels.h"

bool dtp_groups_thousands(const char *text, const char *comma) {
    return comma > text && isdigit((unsigned char)comma[-1]) &&
           strspn(comma + 1, "0123456789") == 3;
}

bool dtp_number_read(const char *text, size_t n, double *out, size_t *out_n) {
    char digits[DTP_LABEL_SIZE / 2], *end;
    size_t at = 0, to = 0;
    while (at < n && isspace((unsigned char)text[at]))
        at++;
    for (; at < n && to < sizeof digits - 1; at++) {
        if (text[at] == ',' && at > 0 && n - at > 3 && dtp_groups_thousands(text, text + at))
            continue;
        if (!isalnum((unsigned char)text[at]) && !strchr("+-.", text[at]))
            break;
        digits[to++] = text[at];
    }
    digits[to] = '\0';
    *out_n = at;
    if (to > 0 && dtp_parse_count(digits, "number", out, NULL) == DTP_OK)
        return true;
    *out = strtod(digits, &end);
    *out_n -= (size_t)(digits + to - end);
    return end > digits;
}
