#!/bin/bash
N=/tmp/b/new; G=examples/data/email-enron.txt
exec > >(tee $OUT/log.txt) 2>&1
timeout 40 compute-sanitizer --tool memcheck --report-api-errors no $N graph bfs $G --source 1 --engine gpu --page-checksums --cache 1M 2>&1 | tail -2
timeout 40 compute-sanitizer --tool memcheck --print-limit 400 $N graph bfs $G --source 1 --engine gpu --cache 1M 2>&1 | grep -E "Program hit|Invalid|ERROR SUMM" | sort | uniq -c | head
for i in 1 2 3 4 5 6 7 8; do
  ((SECONDS > ${LIMIT:-150})) && break
  for p in "" --page-checksums; do
    for a in "bfs kron:20 --sources 2" "pagerank kron:20" "cc kron:20" "sssp kron:18 --sources 1"; do
      timeout 60 $N graph $a --engine gpu --edges storage --runs 1 --cold --cache 25% --no-verify $p 2>&1 | grep -E "reached|iterations|components|error" | sed "s|^|$i ${p:-none} ${a%% *}: |"
    done
  done
done
for p in "" --page-checksums; do timeout 60 $N graph bfs kron:20 --sources 2 --engine gpu --edges storage --cold --cache 25% $p | grep verified; done
echo "all: $SECONDS s"
