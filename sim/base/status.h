/* status.h: outcomes and error messages.
 *
 * Every function that can fail returns enum dtp_status and takes `struct dtp_err *err` last. The
 * message is written once, where the failure is found, with dtp_fail(); callers only propagate:
 *
 *     DTP_TRY(dtp_json_read_file(a, path, &root, err));
 *     if (n < 1)
 *         return dtp_fail(err, DTP_EINPUT, "%s: $.layers: found %d, expected 1 or more", path, n);
 *
 * The value of a status is the exit code of the program. A NULL err is allowed everywhere.
 */
#ifndef DTP_SIM_BASE_STATUS_H
#define DTP_SIM_BASE_STATUS_H

enum dtp_status {
    DTP_OK = 0,
    DTP_ENO = 1,          /* ran, and the answer is no */
    DTP_EUSAGE = 2,       /* wrong use of the command line */
    DTP_EINPUT = 3,       /* bad input */
    DTP_EUNSUPPORTED = 4, /* not supported here */
    DTP_ENOMEM = 5        /* out of memory */
};

struct dtp_err {
    enum dtp_status status;
    char msg[1024]; /* one line, without a newline */
};

/* Formats the message into err (if not NULL) and returns status. A message that is too long is cut. */
enum dtp_status dtp_fail(struct dtp_err *err, enum dtp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message already in err; for callers that know the place better. */
void dtp_err_prefix(struct dtp_err *err, const char *prefix);

#define DTP_TRY(expr)                                                                              \
    do {                                                                                           \
        enum dtp_status dtp_try_status = (expr);                                                   \
        if (dtp_try_status != DTP_OK)                                                              \
            return dtp_try_status;                                                                 \
    } while (0)

#endif
