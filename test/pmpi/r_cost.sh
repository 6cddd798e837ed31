#!/bin/bash
# What a call that is left to MPI costs more with libtiara-pmpi.so than without: instructions, which callgrind counts
# exactly.
#
# On MPI_COMM_SELF nothing waits, so all instructions of a number of calls can be counted, and the difference is what
# was added. On two ranks MPI waits, a different number of turns each time: there the instructions of Tiara's own
# objects are counted.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/programs.sh
. "$(dirname "$0")/../harness/programs.sh"
command -v valgrind >/dev/null || skip 'there is no valgrind'
case $TIARA_TEST_PRELOAD in *:*) skip 'valgrind does not run what is built with a sanitizer' ;; esac
[ -x "$TIARA_TEST_BUILD/test/pmpi/r_tiny" ] || { echo 'r_tiny was not built'; exit 1; }

# 50 ns, at three instructions in a nanosecond.
bound=150

# count NAME RANKS PRELOAD [self]: callgrind's files of all ranks, $work/NAME.PID.cost, of a thousand calls
count() {
    local name=$1 ranks=$2 preload=$3
    shift 3
    run_named "$name" "$ranks" env LD_PRELOAD="$preload" TIARA_PMPI_AFTER=1000000 \
        valgrind -q --tool=callgrind --collect-atstart=no --toggle-collect=measure --callgrind-out-file="$work/$name.%p.cost" \
        "$TIARA_TEST_BUILD/test/pmpi/r_tiny" 1000 "$@"
    expect_status 0
    expect_text out 'result '
}

# instructions NAME OBJECT: those that were executed in objects whose names match, of the rank that executed most
instructions() {
    local file most=0 n
    for file in "$work/$1".*.cost; do
        # A line of costs is "LINE COUNT"; the one after "calls=" is what the callee has counted already. "ob=(7) NAME"
        # names an object once, "ob=(7)" again.
        n=$(awk -v object="$2" '
            /^ob=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH)
                     if (!(id in name)) name[id] = substr($0, RSTART + RLENGTH + 1)
                     mine = name[id] ~ object; next }
            /^cob=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH)
                      if (!(id in name)) name[id] = substr($0, RSTART + RLENGTH + 1); next }
            /^calls=/ { getline; next }
            /^[0-9+*-]/ && mine { sum += $2 }
            END { printf "%d", sum }' "$file")
        [ "$n" -le "$most" ] || most=$n
    done
    echo "$most"
}

# expect_cost WHAT N: of a thousand calls
expect_cost() {
    what=$1
    echo "$1: $(((($2) + 999) / 1000)) instructions"
    [ "$2" -ge 1000 ] || complain 'the library was expected to be in the way'
    [ "$2" -lt $((bound * 1000)) ] || complain "fewer than $bound instructions were expected"
}

count plain 1 '' self
count preloaded 1 "$TIARA_TEST_PRELOAD" self
before=$(instructions plain .)
[ "$before" -gt 0 ] || complain 'callgrind was expected to count instructions'
expect_cost "added to the $((before / 1000)) of a call on MPI_COMM_SELF" $(($(instructions preloaded .) - before))

count pair 2 "$TIARA_TEST_PRELOAD"
expect_cost "Tiara's own, of a call on two ranks" "$(instructions pair libtiara)"
finish
