#include "models/schedule/schedule.h"

#include <ctype.h>
#include <string.h>

void dtp_schedule_print(FILE *f, const struct dtp_schedule *s) {
    fprintf(f, "# %s pp %d vpp %d m %d\n", dtp_schedule_kinds[s->kind].name, s->pp, s->vpp, s->m);
    for (int rank = 0; rank < s->pp; rank++) {
        fprintf(f, "%d:", rank);
        for (uint32_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct dtp_action x = s->action[i];
            fprintf(f, " %u%s%u", (unsigned)x.chunk, dtp_action_names[x.kind],
                    (unsigned)x.microbatch);
        }
        fputc('\n', f);
    }
}

/* ---- reading ---- */

struct reader {
    const char *name, *at;
    int line;
    int most_chunk, most_microbatch;
    struct dtp_err *err;
};

enum { MOST_MICROBATCH = 1 << 24 };

static size_t token_length(const char *s) {
    return strcspn(s, " \t\r\n");
}

static enum dtp_status bad_token(const struct reader *r, const char *what) {
    return dtp_fail(r->err, DTP_EINPUT, "%s:%d: found \"%.*s\", expected %s", r->name, r->line,
                    (int)token_length(r->at), r->at, what);
}

/* Digits at *s, at most `most`; -1 when there are none or too many. */
static int read_number(const char **s, int most) {
    const char *p = *s;
    int v = 0;
    if (!isdigit((unsigned char)*p))
        return -1;
    for (; isdigit((unsigned char)*p); p++) {
        v = v * 10 + (*p - '0');
        if (v > most)
            return -1;
    }
    *s = p;
    return v;
}

static enum dtp_status read_action(struct reader *r, struct dtp_action *out) {
    static const char what[] = "CHUNK KIND MICROBATCH such as 0F3, KIND one of F B I W SF RF SB RB "
                               "C U R G D H O";
    const char *p = r->at;
    int chunk = read_number(&p, DTP_SCHED_MAX_VPP - 1);
    size_t letters = 0;
    while (isalpha((unsigned char)p[letters]))
        letters++;
    int kind = 0;
    while (kind < DTP_NACTIONS && (strlen(dtp_action_names[kind]) != letters ||
                                   strncmp(dtp_action_names[kind], p, letters) != 0))
        kind++;
    p += letters;
    int microbatch = read_number(&p, MOST_MICROBATCH - 1);
    if (chunk < 0 || kind == DTP_NACTIONS || microbatch < 0 || token_length(p) != 0)
        return bad_token(r, what);
    *out = (struct dtp_action){(uint8_t)kind, (uint16_t)chunk, (uint32_t)microbatch};
    r->most_chunk = chunk > r->most_chunk ? chunk : r->most_chunk;
    r->most_microbatch = microbatch > r->most_microbatch ? microbatch : r->most_microbatch;
    r->at = p;
    return DTP_OK;
}

static void skip_blanks(struct reader *r) {
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#')
        r->at += strcspn(r->at, "\n");
}

/* "RANK: action action ..." up to the end of the line. */
static enum dtp_status read_rank(struct reader *r, struct dtp_schedule *s) {
    const char *p = r->at;
    int rank = read_number(&p, DTP_SCHED_MAX_PP - 1);
    if (rank != s->pp || *p != ':')
        return dtp_fail(r->err, DTP_EINPUT, "%s:%d: expected \"%d:\" and the actions of rank %d",
                        r->name, r->line, s->pp, s->pp);
    r->at = p + 1;
    uint32_t n = s->begin[rank];
    for (skip_blanks(r); *r->at && *r->at != '\n'; skip_blanks(r), n++) {
        DTP_TRY(read_action(r, &s->action[n]));
        s->split = s->split || s->action[n].kind == DTP_A_I;
    }
    s->begin[++s->pp] = n;
    return DTP_OK;
}

/* The kind that a leading comment "# zb-h1 ..." names, else a user's order. */
static int named_kind(const char *text) {
    char word[64];
    size_t n = strspn(text, "# \t");
    if (*text != '#')
        return DTP_SCHED_USER;
    size_t length = token_length(text + n);
    if (length >= sizeof word)
        return DTP_SCHED_USER;
    memcpy(word, text + n, length);
    word[length] = '\0';
    int kind = dtp_schedule_find(word);
    return kind < 0 ? DTP_SCHED_USER : kind;
}

/* Upper bounds of lines and of actions, for two allocations. */
static void count_text(const char *text, size_t *lines, size_t *tokens) {
    *lines = 1;
    *tokens = 0;
    for (const char *p = text; *p;) {
        size_t n = token_length(p);
        *tokens += n > 0;
        p += n;
        *lines += *p == '\n';
        p += *p != '\0';
    }
}

enum dtp_status dtp_schedule_parse(struct dtp_arena *a, const char *name, const char *text, int vpp,
                                   struct dtp_schedule *out, struct dtp_err *err) {
    struct reader r = {.name = name, .at = text, .line = 1, .most_microbatch = -1, .err = err};
    struct dtp_schedule s = {.kind = named_kind(text)};
    size_t lines, tokens;
    count_text(text, &lines, &tokens);
    s.begin = DTP_NEW(a, uint32_t, lines + 1);
    s.action = DTP_NEW(a, struct dtp_action, tokens);
    for (; *r.at; r.line++, r.at += *r.at == '\n') {
        skip_blanks(&r);
        if (*r.at && *r.at != '\n')
            DTP_TRY(read_rank(&r, &s));
    }
    if (s.pp == 0 || r.most_microbatch < 0)
        return dtp_fail(err, DTP_EINPUT, "%s: no actions, expected lines such as \"0: 0F0 0B0\"",
                        name);
    if (vpp > 0 && r.most_chunk >= vpp)
        return dtp_fail(err, DTP_EINPUT, "%s: chunk %d occurs, expected chunks below %d", name,
                        r.most_chunk, vpp);
    s.vpp = vpp > 0 ? vpp : r.most_chunk + 1;
    s.m = r.most_microbatch + 1;
    const char *why =
        s.kind == DTP_SCHED_USER ? NULL : dtp_schedule_applies(s.kind, s.pp, s.vpp, s.m);
    if (why)
        return dtp_fail(err, DTP_EINPUT, "%s: named %s, with pp %d, vpp %d, %d microbatches: %s",
                        name, dtp_schedule_names[s.kind], s.pp, s.vpp, s.m, why);
    *out = s;
    return DTP_OK;
}
