#!/bin/bash
# scripts/bundle: what it packs runs from another place, with the MPI that it was taken from hidden, as root of a
# machine that permits it; without a GPU, and with the stand-in for the CUDA runtime.
# tiara-test: timeout 300
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

source=$(cd "$(dirname "$0")/../.." && pwd)
mpirun=${TIARA_TEST_MPIRUN%% *}

skip() {
    echo "skipped: $1"
    exit 77
}
[ -e "$TIARA_TEST_BUILD/libtiara-cuda.so" ] || skip 'there is no CUDA part, without which there is no bundle'
[[ $("$mpirun" --version 2>&1) == *'(Open MPI) 4.'* ]] || skip 'this MPI is not Open MPI 4'

what='scripts/bundle'
MPIRUN=$mpirun "$source/scripts/bundle" --build "$TIARA_TEST_BUILD" --output "$work/here/tiara-bundle" >"$work/out" 2>"$work/err"
status=$?
expect_status 0
[ "$status" -eq 0 ] || finish
rm -rf "$work/here/tiara-bundle"
mkdir "$work/there" "$work/empty"
tar -C "$work/there" -xzf "$work/here/tiara-bundle.tar.gz"

# Runs a command in the bundle. A file of Open MPI or PMIx outside it is an empty one, and a folder too.
cat >"$work/inside" <<'END'
if [ "$1" = hide ]; then
    plugins=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p' | head -n 1)
    texts=$(ompi_info --parsable --path pkgdatadir | sed -n 's/^path:pkgdatadir://p' | head -n 1)
    objects=$(ldd "$plugins"/mca_pmix_*.so | sed -n 's,^.*lib\(open-\|pmix\|event\|hwloc\).* => \(/[^ ]*\) .*,\2,p' | sort -u)
    for object in $objects "$(command -v mpirun)" "$(command -v orted)"; do
        mount --bind /dev/null "$(readlink -f "$object")" || exit 77
    done
    for folder in "$plugins" "$texts"; do
        mount --bind "$3" "$folder" || exit 77
    done
    ! mpirun --version >/dev/null 2>&1 || exit 77
fi
cd "$2" || exit 1
. ./env.sh
shift 3
read -r -a flags <<<"$(scripts/mpirun-flags mpirun)"
exec mpirun "${flags[@]}" "$@"
END
inside() {
    local hide=show run=()
    if [ -n "$can_hide" ]; then hide=hide run=(unshare --mount); fi
    what="in the bundle ($hide): $*"
    "${run[@]}" bash "$work/inside" $hide "$work/there/tiara-bundle" "$work/empty" "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}
can_hide=''
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
    can_hide=yes
    inside --version
    [ "$status" -ne 77 ] || { can_hide=''; echo 'the MPI of the machine could not be hidden'; }
fi

inside -n 2 tiara-bench --sizes 8,64k -c -x 1 -i 5
expect_status 0
[ "$(awk '$3 == "Pass"' "$work/out" | wc -l)" -eq 2 ] || complain '2 rows with Pass were expected'
what='ldd of what is in the bundle'
(
    # shellcheck source=/dev/null
    . "$work/there/tiara-bundle/env.sh"
    cd "$work/there/tiara-bundle" && ldd bin/* lib/*.so* lib/*/*.so test/*/*
) >"$work/out" 2>&1
grep 'not found' "$work/out" | grep -qv 'libcudart\|libcuda\.' && complain 'libraries are missing'

standin=$TIARA_TEST_BUILD/test/cuda/standin
if [ -e "$standin/libcudart.so.13" ] && [ -e "$standin/libkernels_on_cpu.so" ]; then
    export LD_LIBRARY_PATH=$standin TIARA_CUDA=on
    inside -n 2 tiara-bench -d cuda --sizes 8,64k -c -x 1 -i 5
    expect_status 0
    [ "$(awk '$3 == "Pass"' "$work/out" | wc -l)" -eq 2 ] || complain '2 rows with Pass were expected'
    what='gpu-check in the bundle'
    "$work/there/tiara-bundle/gpu-check" --only machine -o "$work/report" </dev/null >"$work/out" 2>"$work/err"
    status=$?
    expect_status 0
    cp "$work/report" "$work/out"
    expect_text out '"from": "bundle"'
else
    echo 'the bundle was not tried on GPU memory, as the stand-in was not built'
fi
finish
