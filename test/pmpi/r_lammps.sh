#!/bin/bash
# LAMMPS melts a Lennard-Jones crystal: some all-reduces in each step, for the thermodynamics and for whether an atom
# has moved far.
#
# On 2 ranks the preloaded run prints the same digits as the plain one: a sum of two numbers has one order. On 4 ranks
# each library adds in an order of its own, so the last digits differ, and grow in time, as melts are chaotic; but a
# library adds in the same order each time: a second preloaded run prints the same digits as the first.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/programs.sh
. "$(dirname "$0")/../harness/programs.sh"
needs_program lmp
steps=300

cat >"$work/melt" <<END_OF_MELT
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 1 delay 0 check yes
fix 1 all nve
compute displacement all msd
thermo_style custom step temp epair etotal press c_displacement[4]
thermo_modify format float %.15g
thermo 1
run $steps
END_OF_MELT
program=(lmp -in "$work/melt" -log none)

# The thermodynamics that a run printed: a line for each step.
thermo() {
    awk '/^ *Step/ { on = 1; next } /^Loop/ { on = 0 } on' "$work/$1.out" >"$work/$1.thermo"
    [ "$(wc -l <"$work/$1.thermo")" -eq $((steps + 1)) ] || complain "$((steps + 1)) lines of thermodynamics were expected"
}

for ranks in 2 4; do
    plain "plain-$ranks" "$ranks" "${program[@]}"
    thermo "plain-$ranks"
    for turn in 1 2; do
        preloaded "preloaded-$ranks-$turn" "$ranks" "${program[@]}"
        thermo "preloaded-$ranks-$turn"
        expect_served "preloaded-$ranks-$turn" MPI_Allreduce
    done
    expect_same "preloaded-$ranks-1.thermo" "preloaded-$ranks-2.thermo"
done
expect_same plain-2.thermo preloaded-2-1.thermo

# Compared with MPI in each call, and with MPI's results.
TIARA_PMPI=verify preloaded verify-4 4 "${program[@]}"
grep -qE '^tiara: verify: [1-9][0-9]* calls compared, 0 differ' "$work/err" || complain 'all calls were expected to be compared and alike'
thermo verify-4
expect_same plain-4.thermo verify-4.thermo

# Energy and temperature to nine digits, in all steps; a digit is lost in some hundred.
worst=$(paste "$work/plain-4.thermo" "$work/preloaded-4-1.thermo" | awk '
    function off(a, b, d) { d = a - b; m = a < 0 ? -a : a; return (d < 0 ? -d : d) / (m > 1 ? m : 1) }
    NF != 12 || $1 != $7 { worst = 1 }
    { for (i = 2; i <= 6; i++) { d = off($i, $(i + 6)); if (d > worst) worst = d } }
    END { printf "%g", worst }')
what='the thermodynamics of 4 ranks, plain and preloaded'
echo "$what: the largest difference is $worst"
awk "BEGIN { exit !($worst < 1e-9) }" || complain "they differ by $worst"
finish
