# The code of a line of C: without comments, and with empty strings. Lines are given in their order.
FNR == 1 { comment = 0 }
function code(line) {
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    if (comment) {
        if (!sub(/^.*\*\//, "", line)) return ""
        comment = 0
    }
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
    sub(/\/\/.*/, "", line)
    if (sub(/\/\*.*/, "", line)) comment = 1
    return line
}
