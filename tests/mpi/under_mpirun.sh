#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program on so many ranks, in a folder that is there for it alone: under_mpirun.sh [--bound] MPIRUN RANKS PROGRAM
# ARGUMENT... More ranks than processors, and root, are allowed; Open MPI has to be asked for both. Ranks have one thread
# unless OMP_NUM_THREADS says otherwise. With --bound each rank has a core of its own, and the threads that it finds good.
set -eu
bound=
if [ "$1" = --bound ]; then
    bound='-bind-to core'
    shift
fi
mpirun=$1 ranks=$2 program=$(realpath "$3")
shift 3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ -z "$bound" ]; then
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
else
    unset OMP_NUM_THREADS
fi
# On a system where it cannot start anything there is nothing to test: Meson counts 77 as skipped.
# shellcheck disable=SC2086 # two words or none
if ! why=$("$mpirun" $bound -n "$ranks" true 2>&1); then
    echo "skipped: $mpirun does not start $ranks processes: $why"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# shellcheck disable=SC2086
"$mpirun" $bound -n "$ranks" "$program" "$@"
