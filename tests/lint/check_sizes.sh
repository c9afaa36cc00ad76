#!/usr/bin/env bash
# Files of at most 1,000 lines (600 is the aim: longer ones are listed), functions of at most 60
# lines and 6 parameters (without arena, error and stream), nesting of at most 3 (not of CUDA's unrolled
# loops). Relies on the layout of clang-format: a function begins in the first column with a line or
# lines that end in ") {", and ends with a brace in the first column; each level of nesting is four spaces.
find sim hw models traces planner runtime tests -regex '.*\.\(c\|h\|cu\|cuh\)' -print0 2>/dev/null |
    sort -z | xargs -0 awk '
function fail(line, text) {
    printf "%s:%d: %s\n", FILENAME, line, text
    bad = 1
}
function end_of_file() {
    if (lines > 1000) { printf "%s: %d lines, at most 1,000\n", name, lines; bad = 1 }
    else if (lines > 600) printf "note: %s: %d lines, the aim is 600\n", name, lines
}
function parameters(text,    i, c, depth, n) {
    # the arena to allocate in, the error and the stream come with every such function
    sub(/, *cudaStream_t stream/, "", text)
    if (!sub(/, *struct dtp_err \*err/, "", text)) sub(/struct dtp_err \*err, */, "", text)
    sub(/struct dtp_arena \*a, */, "", text)
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "(" || c == "<") depth++
        else if (c == ")" || c == ">") depth--
        else if (c == "," && depth == 1) n++
    }
    return n + 1
}
FNR == 1 { if (NR > 1) end_of_file(); name = FILENAME; signature = ""; start = 0 }
{ lines = FNR }
start && /^\}/ {
    if (FNR - start - 1 > 60) fail(start, "a function of " FNR - start - 1 " lines, at most 60")
    start = 0
}
start && FILENAME !~ /^tests|\.cuh?$/ && /^                +(if|for|while|do|switch) / { fail(FNR, "nested deeper than 3") }
start { next }
/^[A-Za-z_]/ { signature = "" }
/^$|^[#\/}]/ { signature = ""; next }
{ signature = signature " " $0 }
/\) \{$/ && signature ~ /^ [A-Za-z_]/ {
    start = FNR
    if (parameters(signature) > 6) fail(FNR, "more than 6 parameters")
}
END { end_of_file(); exit bad }'
