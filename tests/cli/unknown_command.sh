# A mistyped command is a usage error: nothing on standard output, the nearest name on the other.
"$dtplan" modles 2>message
status=$?
grep -o "\"models\"" message | head -n 1
exit $status
