# One line a step: what was measured, what the replay makes of it and of a what-if.
"$dtplan" replay "$root"/tests/fixtures/traces/job_rank*.json --steps --kernel-speed 2
