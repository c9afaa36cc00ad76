# The order of 1F1B (Narayanan 2021, figure 4) as text: one warm-up forward less on each later stage.
"$dtplan" schedules 1f1b --pp 4 --microbatches 4 | grep '^[0-9]*: '
"$dtplan" schedules gpipe --pp 2 --microbatches 2 | grep '^[0-9]*: '
"$dtplan" schedules interleaved --pp 2 --vpp 2 --microbatches 4 | grep '^[0-9]*: '
