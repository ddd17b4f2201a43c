#!/bin/sh
# Checks redlock.pml with Spin: what must hold, in full, and that each way to be wrong is found out. "make model" runs it.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/redlock.pml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# run DEPTH FLAGS SEED DEFINES...: builds and runs a verifier, and leaves what it says in the file "said".
run() {
	depth=$1 flags=$2 seed=$3
	shift 3
	spin "$@" -a "$model"
	cc -O2 -w -DSAFETY $flags -DMEMLIM=6000 -o pan pan.c
	./pan -E -m"$depth" $seed >said
}

# A search that was cut short proves nothing.
holds() {
	run 100000 -DCOLLAPSE '' "$@"
	if ! grep -q 'errors: 0' said || grep -Eq 'max search depth too small|Search not completed|out of memory' said; then
		cat said
		echo "$*: it does not hold, or the search was not completed" >&2
		exit 1
	fi
	echo "holds: $* ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1 states/p' said))"
}

# broken DEPTH SEED DEFINES...: the depth bounds the search, and the seed is one of its order that does not take long.
broken() {
	depth=$1 seed=$2
	shift 2
	run "$depth" '-DT_RAND -DP_RAND' "-RS$seed" "$@"
	if ! grep -q 'assertion violated' said; then
		cat said
		echo "$*: it is wrong, and nothing was found" >&2
		exit 1
	fi
	echo "found out: $* ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1 states/p' said))"
}

holds -DK=2
holds -DK=2 -DCLOCKS
holds -DK=2 -DLATE -DEXTENDS -DCLOCKS
holds -DK=2 -DRESTARTS=1 -DCLOCKS
broken 112 1 -DK=2 -DMAXREPLY
broken 112 1 -DK=2 -DNOOWNER
broken 112 3 -DK=2 -DREPEAT=1 -DNOCOUNTER
broken 116 1 -DK=3 -DEXTENDS -DRETAKEBLIND
broken 112 1 -DK=2 -DRESTARTS=1 -DVOTEATONCE
broken 112 3 -DK=2 -DRESTARTS=1 -DNOREADING
broken 112 2 -DK=2 -DRESTARTS=1 -DNOWAITING
broken 116 1 -DK=2 -DRESTARTS=1 -DREADFIRST
