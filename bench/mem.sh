#!/bin/bash
# mem.sh measures what rung's own processes cost per live sandbox: the proportional set size (shared pages divided among
# their users) of client, holder and rung-guest, with COUNT idle sandboxes alive at once, per rung. The payload (sleep) is
# left out, the runtime's own processes (crun, runc, runsc) have a column of their own. Under gvisor the guest runs inside
# runsc's memory and is counted there.
#
# usage: bench/mem.sh        environment: COUNT=8 TEMPLATE=host RUNGS="process container hardened gvisor" GOAL=10 (MiB)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

count=${COUNT:-8} template=${TEMPLATE:-host} goal=${GOAL:-10}
read -ra rungs <<<"${RUNGS:-process container hardened gvisor}"
tmp=$(mktemp -d)
clients=()
cleanup() {
  for pid in "${clients[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT

# descendants PID: the pid and all below it.
descendants() {
  echo "$1"
  local c
  for c in $(cat "/proc/$1/task/"*/children 2>/dev/null || true); do descendants "$c"; done
}

# kind PID: whose process it is. A guest runs from a sealed copy, so its name is all that is left of its path.
kind() {
  local comm exe
  comm=$(cat "/proc/$1/comm" 2>/dev/null || true)
  exe=$(readlink "/proc/$1/exe" 2>/dev/null || true)
  case "$exe $comm" in
    *rung-guest* | */.rung/guest*) echo guest ;;
    */rung\ * | *memfd:rung*) if [ "$1" = "$2" ]; then echo client; else echo holder; fi ;;
    *runsc* | *crun* | *runc*) echo runtime ;;
    *) echo payload ;;
  esac
}

pss() { awk '/^Pss:/ {print $2}' "/proc/$1/smaps_rollup" 2>/dev/null || echo 0; }

measure() { # RUNG
  local rung=$1 i pid p k up accept=() total
  case $rung in process | container) accept=(--accept-lower "$rung") ;; esac
  clients=()
  for i in $(seq "$count"); do
    bin/rung run --quiet --rung "$rung" --threat trusted "${accept[@]}" --template "$template" -- \
      /bin/sh -c 'echo up; exec sleep 55' >"$tmp/$rung.$i" 2>"$tmp/$rung.$i.err" </dev/null &
    clients+=($!)
  done
  for _ in $(seq 300); do
    up=$(cat "$tmp/$rung".[0-9]* | grep -c '^up$' || true)
    [ "$up" = "$count" ] && break
    sleep 0.1
  done
  if [ "$up" != "$count" ]; then
    echo "mem: $rung: only $up of $count sandboxes came up: $(cat "$tmp/$rung".*.err | sort | uniq -c | head -n3)" >&2
    cleanup_rung
    return 0
  fi
  sleep 1 # let start-up garbage settle
  declare -A sum=([client]=0 [holder]=0 [guest]=0 [runtime]=0 [payload]=0)
  for pid in "${clients[@]}"; do
    for p in $(descendants "$pid"); do
      k=$(kind "$p" "$pid")
      sum[$k]=$((sum[$k] + $(pss "$p")))
    done
  done
  total=$((sum[client] + sum[holder] + sum[guest]))
  awk -v r="$rung" -v n="$count" -v c="${sum[client]}" -v h="${sum[holder]}" -v g="${sum[guest]}" -v t="$total" -v x="${sum[runtime]}" -v goal="$goal" '
    BEGIN { m = 1024 * n; printf "| %s | %.1f | %.1f | %.1f | **%.1f** | %.1f | %s |\n", r, c/m, h/m, g/m, t/m, x/m,
            (t/m <= goal) ? "reached" : "**missed**" }' >>"$tmp/table"
  cleanup_rung
}

cleanup_rung() {
  for pid in "${clients[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
  wait || true
  clients=()
}

{
  bench/machine.sh
  echo "Template \`$template\`, $count idle sandboxes at once, MiB PSS per sandbox. \`make mem\`."
  echo
  echo "| | client | holder | guest | rung's own | runtime | goal ≤ $goal |"
  echo "|---|---|---|---|---|---|---|"
} >"$tmp/table"
for rung in "${rungs[@]}"; do measure "$rung"; done
echo
cat "$tmp/table"
go run ./bench/table -section mem -title "Memory" -intro "$tmp/table" -into bench/RESULTS.md
