# Four jobs on two nodes, solved by hand: in order they start at 0, 10, 20, 20 s; backfilled the third at 2 s.
cat >jobs.csv <<'EOF'
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,8,1,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:00:10,10,0
2,u,v,16,1,2,COMPLETED,2020-06-09 18:00:01,2020-06-09 18:00:05,2020-06-09 18:00:15,10,4
3,u,v,8,1,1,FAILED,2020-06-09 18:00:02,2020-06-09 18:00:02,2020-06-09 18:00:07,5,0
4,u,v,8,1,1,COMPLETED,2020-06-09 18:00:03,2020-06-09 18:00:03,2020-06-09 18:00:23,20,0
5,u,v,64,1,8,CANCELLED,2020-06-09 18:00:04,2020-06-09 18:00:04,2020-06-09 18:00:05,1,0
EOF
"$dtplan" jobs jobs.csv --nodes 2 --no-failures
"$dtplan" jobs jobs.csv --nodes 2 --policy backfill --gpu-hours-per-failure 0.05 --restart 2s --checkpoint 1s --json | grep -e failures -e goodput
"$dtplan" jobs jobs.csv --nodes 8 --model gpt3-1.3b --cluster dgx-a100-80 --policy fifo | grep -e GPUs | tee named
"$dtplan" models gpt3-1.3b --json |
    "$dtplan" jobs jobs.csv --nodes 8 --model - --cluster dgx-a100-80 --policy fifo | grep -e GPUs >given
cmp named given && echo 'the same from standard input'
"$dtplan" jobs jobs.csv 2>&1
echo "exit $?"
