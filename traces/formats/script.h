/* script.h: a shell script as the launches in it, without running anything: assignments, defaults as in "${X:-1}",
 * arrays, conditions on what is known, loops once with their first value, documents in the script, variables before a
 * launcher. What a condition on something unknown leaves open is decided for the usual value ("none", "false", "bf16"),
 * else for the "else" branch, else for the first one; every branch is listed. Arguments are those of a comment that
 * calls the script, as "# usage: train.sh 8B bf16".
 */
#ifndef DTP_TRACES_FORMATS_SCRIPT_H
#define DTP_TRACES_FORMATS_SCRIPT_H

#include "traces/formats/settings.h"

struct dtp_launch {
    int line;
    const char *command; /* its first words */
    struct dtp_settings settings;
};

struct dtp_branch {
    int line;
    const char *condition;
    bool taken;
};

struct dtp_script {
    struct dtp_arena *a;
    struct dtp_launch *launch;
    struct dtp_branch *branch;
    const char *const *unread; /* names of commands that are no launch */
    size_t nlaunches, nbranches, nunread;
    size_t launches_room, branches_room;
};

void dtp_script_read(struct dtp_script *out, const char *text);

#endif
