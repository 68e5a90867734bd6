# Runs in the guest, started by /init. Its status is the rig's.
export PATH=/rig:/bin TMPDIR=/tmp RUST_BACKTRACE=1 WARPBELL_RIG_VFIO=@VFIO@
failed=0
run() {
  echo "RIG-TEST $1"
  shift
  "$@" --test-threads=1 @FILTERS@ || { echo "RIG-FAILED $1"; failed=1; }
}
run "software controller" device_io
run "this machine's devices" rig_guest
exit $failed
