#!/bin/bash
# gate.sh measures rung's gate: bytes and new connections through it against slirp4netns and pasta, opened HTTPS against
# goproxy, its memory per idle sandbox, what 1,000 rules and a neighbour's 10,000 denied lookups a second cost an allowed
# flow, and what the default network adds to a start. It writes the section "gate" of RESULTS.md and says which goals are
# missed.
#
# Everything happens in a network namespace of its own whose only way out is a link that leads nowhere; the outside is played
# there on documentation addresses. Needs root.
#
# usage: bench/gate.sh [flags of bench/gate, e.g. -rounds 2 -only bytes,web]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$(id -u)" = 0 ] || { echo "gate.sh: only root can make the network namespaces that this needs" >&2; exit 1; }
tmp=$(mktemp -d /tmp/rbg.XXXXXX) # short: socket paths have little room
trap 'rm -rf "$tmp"' EXIT
export CGO_ENABLED=0
go build -trimpath -o "$tmp/" ./bench/gate ./bench/gate/inside ./bench/gate/standin
(cd bench/gate/mitm && go build -trimpath -o "$tmp/mitm" .)
bench/machine.sh >"$tmp/machine"
version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || echo "of unknown version"; }
echo "slirp4netns $(version slirp4netns), passt $(version passt), goproxy $(sed -nE 's/.*goproxy (v[0-9.]+)$/\1/p' bench/gate/mitm/go.mod)." >>"$tmp/machine"
unshare --net "$tmp/gate" -programs "$tmp" -bin "$PWD/bin" -machine "$tmp/machine" -into bench/RESULTS.md "$@"
