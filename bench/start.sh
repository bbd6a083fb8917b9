#!/bin/bash
# start.sh measures a whole `rung run`, from exec to exit, on each rung against the bare program that rung builds on, on
# the same root file system: `true` (what the wall costs) and python3 printing 1 (what a person waits for).
#
# Blocks of RUNS runs in random order, ROUNDS times, so that a noisy neighbour hits everybody alike; the table shows the
# median of all runs with min and max, and the ratio to the peer named in the row.
#
# usage: bench/start.sh        environment: ROUNDS=6 RUNS=5 TEMPLATE=python ONLY=regexp  KEEP=dir for the raw files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${ROUNDS:-6} runs=${RUNS:-5} template=${TEMPLATE:-python} only=${ONLY:-.}
rung=$PWD/bin/rung runsc=$PWD/bin/runsc
tmp=$(mktemp -d)
cleanup() {
  umount "$tmp/r-runsc/null-netns" 2>/dev/null || true # bare runsc leaves it mounted
  rm -rf "$tmp"
}
trap cleanup EXIT
out=${KEEP:-$tmp/raw} && mkdir -p "$out"

# Every contender sees the same tree: the template's, or the host's /usr where TEMPLATE=host.
tree=host
if [ "$template" != host ]; then
  "$rung" template inspect "$template" >/dev/null 2>&1 || "$rung" template build "$template"
  state=${RUNG_STATE_DIR:-/var/lib/rung}
  [ "$(id -u)" = 0 ] || state=${RUNG_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/rung}
  tree=$state/templates/$template/rootfs
  [ -d "$tree" ] || { echo "start.sh: template $template has no tree at $tree" >&2; exit 1; }
fi
go build -o "$tmp/" ./bench/mkbundle ./bench/table
"$tmp/mkbundle" "$tmp/true" "$tree" /bin/true
"$tmp/mkbundle" "$tmp/python" "$tree" /usr/bin/python3 -c 'print(1)'
root=$tree && [ "$tree" = host ] && root=$tmp/true/rootfs
binds="" && [ "$tree" = host ] && binds="--ro-bind /usr /usr"

bwrap="bwrap --ro-bind $root / $binds --proc /proc --dev /dev --tmpfs /tmp --unshare-all --die-with-parent"
run="$rung run --quiet --template $template --threat trusted --rung"

# name|command, with PROGRAM and BUNDLE replaced per program
contenders=(
  "host|PROGRAM"
  "bwrap|$bwrap PROGRAM"
  "crun|crun --root $tmp/r-crun run --bundle BUNDLE bench-crun"
  "runc|runc --root $tmp/r-runc run --bundle BUNDLE bench-runc"
  "runsc|$runsc --root $tmp/r-runsc --platform=systrap --ignore-cgroups --network=none run --bundle BUNDLE bench-runsc"
  "rung process|$run process --accept-lower process -- PROGRAM"
  "rung container|$run container --accept-lower container -- PROGRAM"
  "rung hardened|$run hardened -- PROGRAM"
  "rung gvisor|$run gvisor -- PROGRAM"
)
[ "$(id -u)" = 0 ] || echo "not root: bare crun and runc may not run; their rows are then empty" >&2

# crun refuses a v1 host with a cgroup v2 mount beside it, so its blocks run without that mount, in a mount namespace of
# their own; hyperfine itself is started in it, so that this costs the runs nothing.
hide_v2() {
  local at
  at=$(findmnt -n -o TARGET -t cgroup2 | head -n1 || true)
  if [ -n "$at" ] && [ "$at" != /sys/fs/cgroup ] && [ "$(id -u)" = 0 ]; then
    unshare -m --propagation private bash -c 'umount "$0" && exec "$@"' "$at" "$@"
  else
    "$@"
  fi
}

block() { # NAME PROGRAM ROUND COMMAND
  local name=$1 program=$2 round=$3 command=$4
  local file="$out/$program.${name// /-}.$round"
  local wrap=()
  [ "$name" = crun ] && wrap=(hide_v2)
  "${wrap[@]}" hyperfine -N --warmup 1 --runs "$runs" --export-json "$file.json" --command-name "$name" "$command" \
    >/dev/null 2>"$file.err" || { echo "$name $program: failed: $(tail -n2 "$file.err" | tr '\n' ' ')" >&2; rm -f "$file.json"; }
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  for i in $(shuf -e "${!contenders[@]}"); do
    name=${contenders[$i]%%|*} command=${contenders[$i]#*|}
    [[ $name =~ $only ]] || continue
    block "$name" true "$round" "$(sed "s|PROGRAM|/bin/true|; s|BUNDLE|$tmp/true|" <<<"$command")"
    block "$name" python "$round" "$(sed "s|PROGRAM|/usr/bin/python3 -c 'print(1)'|; s|BUNDLE|$tmp/python|" <<<"$command")"
  done
done

bench/machine.sh >"$tmp/machine"
echo "Template \`$template\`; $rounds rounds of $runs runs in random order. \`make bench\`." >>"$tmp/machine"
into=bench/RESULTS.md
[ "$only" = . ] || into="" # a part is not a result
"$tmp/table" -intro "$tmp/machine" -into "$into" "$out"
