# Runs in the guest, started by /init. Its status is the rig's.
export WARPBELL_RIG_VFIO=@VFIO@ PATH=/rig:/bin TMPDIR=/tmp RUST_BACKTRACE=1
failed=0
for test in device_io rig_guest; do
  echo "RIG-TEST $test"
  "/rig/$test" --test-threads=1 @FILTERS@ || { echo "RIG-FAILED $test"; failed=1; }
done
exit $failed
