#!/bin/bash
# machine.sh describes this machine and the versions measured on it, as Markdown: figures without it mean nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

first() { "$@" 2>/dev/null </dev/null | head -n1 || true; }

cpu=$(sed -nE 's/^(model name|Model)[[:space:]]*: //p' /proc/cpuinfo | head -n1)
mem=$(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)
os=$(. /etc/os-release && echo "$PRETTY_NAME")
groups="v2"
[ -e /sys/fs/cgroup/cgroup.controllers ] || groups="v1"
[ "$groups" = v1 ] && findmnt -n -t cgroup2 >/dev/null && groups="v1, with a v2 hierarchy beside it"
who="an ordinary user"; [ "$(id -u)" = 0 ] && who="root"

echo "$(date -u +%Y-%m-%d): ${cpu:-unknown CPU}, $(nproc) cores, $mem; $os, kernel $(uname -r), cgroup $groups, as $who;"
echo "rung $(first bin/rung --version | awk '{print $2}'), $(first crun --version), $(first runc --version), $(first bin/runsc --version), $(first bwrap --version)."
