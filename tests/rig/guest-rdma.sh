# Runs in the guest, started by /init. Its status is the rig's.
export PATH=/rig:/usr/bin:/bin TMPDIR=/tmp RUST_BACKTRACE=1
# The shell has an `ip` of its own, which knows neither namespaces nor most devices.
ip() { /usr/bin/ip "$@"; }
failed=0
run() {
  echo "RIG-TEST $1"
  shift
  "$@" --nocapture --test-threads=1 @FILTERS@ || { echo "RIG-FAILED $*"; failed=1; }
}
# RDMA registers memory by locking it.
ulimit -l unlimited
ip link set lo up
verbs() {
  # Packets as large as RoCE's largest MTU, 4096, and its headers.
  ip link add roce0 mtu 4200 type dummy && ip addr add 10.9.0.1/24 dev roce0 && ip link set roce0 up || failed=1
  rdma link add rxe0 type rxe netdev roce0 && rdma link add siw0 type siw netdev roce0 || failed=1
  rdma link
  export WARPBELL_RIG_RDMA=1 SHMEM_CALLS_LIBRARY=/rig/calls.so
  run "adapters over libibverbs" rig_rdma --include-ignored
}
network() {
  export WARPBELL_REQUIRE_NAMESPACES=1 WARPBELL_REQUIRE_NETEM=1
  run "worlds of two hosts" namespaces --include-ignored --skip a_rank
}
case "@PART@" in
  verbs) verbs ;;
  network) network ;;
  *)
    network
    verbs
    ;;
esac
exit $failed
