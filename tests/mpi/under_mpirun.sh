#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program on so many ranks, in a folder that is there for it alone: under_mpirun.sh MPIRUN RANKS PROGRAM
# ARGUMENT... More ranks than processors, and root, are allowed; Open MPI has to be asked for both. Ranks have one thread
# unless OMP_NUM_THREADS says otherwise.
set -eu
mpirun=$1 ranks=$2 program=$(realpath "$3")
shift 3
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
# On a system where it cannot start anything there is nothing to test: Meson counts 77 as skipped.
if ! why=$("$mpirun" -n "$ranks" true 2>&1); then
    echo "skipped: $mpirun does not start $ranks processes: $why"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$mpirun" -n "$ranks" "$program" "$@"
