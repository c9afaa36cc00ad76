# A mistyped command is a usage error: nothing on standard output, the nearest name on the other.
"$dtplan" simulaet 2>message
status=$?
grep -o simulate message | head -n 1
exit $status
