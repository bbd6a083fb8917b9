#!/bin/bash
# The same four programs on four rungs, each with its record, then the ladder of this host. `make demo` calls it.
set -u
cd "$(dirname "$0")"
rung=bin/rung
# As an ordinary user a host without cgroup delegation cannot enforce every limit: accepted here, and in the records.
best=()
[ "$(id -u)" = 0 ] || best=(--best-effort-limits)

bold() { if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }

failed=0
for r in process container hardened gvisor; do
  echo
  bold "== rung $r =="
  # hardened is for vetted code and process and container are below every list, so the demo says so each time.
  case $r in
    gvisor) accept=() ;;
    hardened) accept=(--threat trusted) ;;
    *) accept=(--accept-lower "$r") ;;
  esac
  for program in probe.py words.js shapes.ts look.sh; do
    "$rung" run --rung "$r" "${accept[@]}" "${best[@]}" "demo/$program" || { failed=1; echo "  (exit $?)"; }
  done
  "$rung" run --rung "$r" "${accept[@]}" "${best[@]}" --json -- true |
    python3 -c '
import json, sys
r = json.load(sys.stdin); i = r["isolation"]
if not i: sys.exit("no isolation record: " + r.get("error", ""))
on = lambda b: "yes" if b else "no"
apart = ",".join(sorted(k for k, v in i["namespaces"].items() if v))
print("  record", r["id"] + ", measured inside: uid", str(i["uid"]) + ", capabilities", str(len(i["capabilities"])) + ",",
      "no-new-privileges", on(i["no_new_privs"]) + ",")
print("    seccomp mode", str(i["seccomp_mode"]) + ", root read-only", on(i["root_readonly"]) + ", gVisor", on(i["gvisor"]) + ",",
      "interfaces", ",".join(i["interfaces"]) + ", own namespaces", apart)
' || failed=1
done
echo
bold "== the ladder of this host =="
"$rung" ladder
echo
echo "Next: bin/rung run --help, README.md, and make test."
exit $failed
