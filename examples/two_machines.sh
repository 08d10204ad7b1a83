#!/bin/sh
# Two machines: two rooms, each with its own server, linked by one invitation. Both run on this machine here; on two
# machines the commands are the same, with a certificate and a name on the side that listens (docs/federation.md).
#
#     sh examples/two_machines.sh
set -eu

work=$(mktemp -d)
berlin="--room sqlite:$work/berlin.db --set system=berlin"
paris="--room sqlite:$work/paris.db --set system=paris"
servers=""
trap 'kill $servers 2>/dev/null; wait; rm -rf "$work"' EXIT

wait_for() { # wait until a command succeeds
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || { echo "gave up on: $*" >&2; exit 1; }
        sleep 0.1
    done
}

# Berlin listens; the port is one that is free now. Paris only calls.
postroom serve $berlin --http 127.0.0.1:0 --socket "$work/berlin.sock" >"$work/berlin.log" 2>&1 &
servers="$servers $!"
wait_for grep -q http:// "$work/berlin.log"

# The invitation holds an address, a token and the pin of a certificate. It is a secret, so it goes from pipe to pipe.
postroom peers invite paris $berlin | postroom peers join $paris
postroom serve $paris --http off --socket "$work/paris.sock" >"$work/paris.log" 2>&1 &
servers="$servers $!"

postroom register --as bob $berlin >/dev/null
postroom register --as ann $paris >/dev/null
wait_for postroom peers ping $paris

postroom send bob@berlin "Which sort is stable?" --as ann $paris
postroom wait --as bob --timeout 30s $berlin
postroom send ann@paris "Merge sort is stable." --as bob $berlin
postroom wait --as ann --timeout 30s $paris
