#!/bin/bash
# deps.sh installs the Debian packages that rung's rungs, templates, tests and benchmarks use; `deps.sh test` also those
# that only tests use, `deps.sh bench` the peers that the gate is measured against. It is quick when all are there; without root it prints the command instead. RUNG_DEPS=no skips it:
# rung then names what a rung lacks by itself.
set -euo pipefail

[ "${RUNG_DEPS:-yes}" = no ] && exit 0

# The runtimes; the templates (debootstrap trees, disk images); ids for rootless; what demo, tests and bench run.
packages=(
  crun runc
  mmdebstrap e2fsprogs ca-certificates
  uidmap
  python3 nodejs
  bubblewrap hyperfine jq strace procps util-linux
)
# The virtual machine of test/v2, which fetches its kernel by itself and never installs it.
if [ "${1:-}" = test ] && [ "$(uname -m)" = x86_64 ]; then packages+=(qemu-system-x86); fi
if [ "${1:-}" = bench ]; then packages+=(slirp4netns passt iproute2); fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "deps: not a Debian system; install what corresponds to: ${packages[*]}" >&2
  exit 0
fi

missing=()
for p in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$p")
done
[ ${#missing[@]} = 0 ] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" != 0 ]; then
  echo "deps: these packages are missing; install them with" >&2
  echo "    sudo apt-get update && sudo ${install[*]}" >&2
  echo "or set RUNG_DEPS=no to go on with the rungs this host can do without them" >&2
  exit 1
fi

echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
"${install[@]}" -qq </dev/null >/dev/null
