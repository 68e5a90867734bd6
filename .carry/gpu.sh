#!/bin/bash
# correctness, then speed in turn
N=/tmp/b/new; O=/tmp/b/old; G=examples/data/email-enron.txt
exec > >(tee $OUT/log.txt) 2>&1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
S=$SECONDS
q() { echo "\$ $*"; timeout 60 "$@" 2>&1 | tail -3; }
for a in bfs cc; do q $N graph $a $G --engine gpu --page-checksums --cache 1M; done
q $N graph sssp kron:16 --engine gpu --page-checksums --cache 1M
q $N graph pagerank kron:16 --engine gpu --page-checksums --page-size 16k
q $N graph bfs $G --source 1 --engine gpu --device soft:mem,corrupt=read:1400-1700
q $N graph bfs $G --source 1 --engine gpu --device soft:mem,corrupt=read:1400-1700 --page-checksums
q $N graph bfs $G --source 1 --engine gpu --device soft:mem,corrupt=read:every:150 --page-checksums
q $N graph bfs $G --source 1 --engine gpu --device soft:mem,corrupt=read:1400-1700 --device soft:mem --replicate --stripe-chunk 8k --page-checksums
q $N graph bfs $G --source 1 --engine gpu --device soft:mem --landing bounce --page-checksums
echo "correct: $((SECONDS-S)) s"
S=$SECONDS
timeout 50 compute-sanitizer --tool memcheck $N graph bfs $G --source 1 --engine gpu --page-checksums --cache 1M 2>&1 | tail -3
timeout 50 compute-sanitizer --tool racecheck $N graph bfs $G --source 1 --engine gpu --page-checksums --cache 1M 2>&1 | tail -3
echo "sanitizer: $((SECONDS-S)) s"
K="graph bfs kron:20 --engine gpu --edges storage --source 5 --runs 3 --cold --cache 25% --no-verify"
for i in 1 2 3 4 5 6 7 8; do
  ((SECONDS > ${LIMIT:-330})) && break
  for b in new; do
    B=/tmp/b/$b; S=$SECONDS
    timeout 40 $B bench array --engine gpu --size 1G --runs 3 --json $OUT/array.$b.$i.json > /dev/null || echo "array $b failed"; A=$SECONDS
    timeout 40 $B bench nvme --engine gpu --runtime 1s --size 256M --iodepth 512 --json $OUT/nvme.$b.$i.json > /dev/null || echo "nvme $b failed"; V=$SECONDS
    timeout 40 $B $K --json $OUT/graph.$b.$i.json > /dev/null || echo "graph $b failed"
    echo "round $i $b: array $((A-S)) nvme $((V-A)) graph $((SECONDS-V))"
  done
  timeout 40 $N $K --page-checksums --json $OUT/graph.sums.$i.json > /dev/null || echo "graph sums failed"
done
echo "all: $SECONDS s"
