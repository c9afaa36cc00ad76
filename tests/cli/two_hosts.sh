#!/usr/bin/env bash
# Two network namespaces with a cable between them are two hosts: they train by TCP with the losses of one host, and
# when the cable is cut both end in seconds, long before the time-out.
a=dtp$$a b=dtp$$b
{ ip netns add "$a" && ip netns add "$b"; } 2>/dev/null ||
    { ip netns del "$a" 2>/dev/null; echo "skipped: no network namespaces here" >&2; exit 77; }
trap 'ip netns del "$a"; ip netns del "$b"' EXIT
ip link add cable netns "$a" type veth peer name cable netns "$b" 2>/dev/null ||
    { echo "skipped: no virtual Ethernet here" >&2; exit 77; }
for i in 1 2; do
    host=$([ $i = 1 ] && echo "$a" || echo "$b")
    ip -n "$host" addr add 10.77.0.$i/24 dev cable
    ip -n "$host" link set lo up
    ip -n "$host" link set cable up
done
losses() { grep -o 'step  *[12]  loss [0-9.]*'; }
run=(run --model gpt-check --dp 2 --batch 2)
# rank NAMESPACE RANK OPTION...: one rank, on a host of that name, as torchrun would start it
rank() {
    ip netns exec "$1" unshare -u bash -c 'hostname "$0"; exec "$@"' "$1" env RANK="$2" WORLD_SIZE=2 LOCAL_RANK=0 \
        LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 "$dtplan" "${run[@]}" "${@:3}"
}
"$dtplan" "${run[@]}" --steps 2 | losses >expected
[ "$(wc -l <expected)" = 2 ] && echo "two losses"
rank "$b" 1 --steps 2 >other &
rank "$a" 0 --steps 2 | losses | cmp expected - && echo "the same on two hosts"
wait
rank "$b" 1 --steps 100000 >b.out 2>b.err &
rank "$a" 0 --steps 100000 >a.out 2>a.err &
for _ in {1..100}; do
    grep -q 'step  *3 ' a.out && break
    sleep 0.2
done
ip -n "$b" link set cable down
SECONDS=0
wait
[ $SECONDS -lt 20 ] && echo "both ended soon"
grep -o 'rank 1 died: rank 0 lost its connection' a.err
grep -o 'rank 0 died: rank 1 lost its connection' b.err
