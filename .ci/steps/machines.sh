# shellcheck shell=bash
# Virtual machines of the rig, and launchers on two nodes of this machine. Sourced by .ci/run.

readonly TORCH=torch==2.5.1
readonly DAILY_RIG="--vfio group --fabrics"

# What the rig downloads and builds comes into being beside the steps before it, at the lowest priority: few of those keep all processors busy
# all the time.
preparing="" # its process group
prepare_rig() {
  set -m
  # shellcheck disable=SC2086 # options
  nice -n 19 tests/rig/run $DAILY_RIG --prepare >target/ci/rig.txt 2>&1 </dev/null &
  set +m
  preparing=$!
}

prepared_rig() {
  [[ -n $preparing ]] || return 0
  local status=0
  wait "$preparing" || status=$?
  preparing=""
  cat target/ci/rig.txt
  ((status == 0)) || die "what the rig needs could not be fetched or built ($status)"
}

# Runs the rig with so many hosts.
rig_of() {
  shown "tests/rig/run ${*:2}"
  grep -c "^RIG-DONE status 0 " target/ci/last.txt | grep -qx "$1" || die "not all $1 machines came to their end"
  grep -qE "^rig: all machines: RIG-TESTS [0-9]+ passed, 0 failed, 0 ignored" target/ci/last.txt || die "not all tests of the rig ran"
}

# What the distribution's own kernels have. VFIO by group on real NVMe controllers, as far as a virtual machine has such: faults, removal,
# resets. Drives of another machine over TCP and over Soft-RoCE.
step_rig() {
  prepared_rig
  rig_of 4 "$DAILY_RIG"
}

# --- .ci/run long

# Also on a kernel that is built here: VFIO by device file and without an IOMMU; adapters over libibverbs on Soft-RoCE, beside perftest; two
# hosts with a bad network between them.
step_whole_rig() {
  rig_of 9
}

# The scripts of deploy/ under Slurm, Open MPI and MPICH, on two nodes of this machine. torchrun's part by its variables alone: torch takes
# gigabytes. Pods by the variables of their manifests: there is no cluster.
step_launchers() {
  works slurmd -V -- slurmd
  works slurmctld -V -- slurmctld
  works sbatch --version -- slurm-client
  works munged --version -- munge
  works mpirun.openmpi --version -- openmpi-bin
  works mpirun.mpich --version -- mpich
  works compgen -G "/usr/lib/*/pmix2/lib/libpmix.so" -- libpmix-dev
  works ip -V -- iproute2
  works pgrep --version -- procps
  ((${#missing[@]} == 0)) || install_missing
  # Most of the time they wait.
  shown "WARPBELL_REQUIRE_LAUNCHERS=1 cargo test --locked --test world launchers:: -- --ignored --show-output --test-threads 4"
  grep -q "^test result: ok. 5 passed" target/ci/last.txt || die "not all launchers were tested"
}

# torchrun itself.
step_torchrun() {
  local folder=$PWD/target/ci/torch
  if ! "$folder/bin/torchrun" --help >/dev/null 2>&1; then
    python3 -m venv --clear "$folder"
    "$folder/bin/python3" -m pip install --quiet "$TORCH" numpy
  fi
  shown "WARPBELL_REQUIRE_LAUNCHERS=1 WARPBELL_TORCHRUN=$folder/bin/torchrun cargo test --locked --test world launchers::torchrun -- --ignored --show-output"
  grep -q "^test result: ok. 1 passed" target/ci/last.txt || die "torchrun was not tested"
}
