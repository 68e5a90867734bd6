# Runs in the guest, started by /init. Its status is the rig's.
export PATH=/rig:/bin TMPDIR=/tmp RUST_BACKTRACE=1 WARPBELL_RIG_VFIO=@VFIO@
two=0000:00:04.0 mate=0000:00:05.0
failed=0 risk=
case "@VFIO@" in
  group) option=api=group ;;
  iommufd) option=api=cdev ;;
  # Without an IOMMU the driver takes huge pages, at least one for each piece of memory.
  none)
    option=unsafe-no-iommu risk=--unsafe-no-iommu
    echo 256 >/proc/sys/vm/nr_hugepages
    ;;
esac
run() {
  echo "RIG-TEST $1"
  shift
  "$@" --test-threads=1 || { echo "RIG-FAILED $*"; failed=1; }
}
for drive in "$two" "$mate"; do
  warpbell nvme bind "$drive" $risk || failed=1
done
# The same program that `cargo test` runs on the software controller.
export WARPBELL_TEST_DEVICES="nvme:$two,nsid=1,$option nvme:$two,nsid=2,$option"
export WARPBELL_TEST_PAIR="nvme:$two,nsid=1,$option nvme:$mate,nsid=1,$option"
case "@PART@" in
  all | most) run "reads and writes of every kind" device_io --nocapture @FILTERS@ ;;
esac
guarded() {
  name=$1
  shift
  # Only iommufd maps dma-bufs.
  [ "@VFIO@" = iommufd ] || set -- "$@" --skip dma_buf
  run "$name" rig_guest --nocapture --include-ignored --skip no_iommu "$@"
}
unguarded() {
  # Names, as two filters would add up; the first one is no test, so that an empty list does not mean all of them.
  run "drives that no IOMMU guards" rig_guest --nocapture --ignored --exact no_iommu \
    $(rig_guest --list --ignored @FILTERS@ | sed -n 's/^\(no_iommu::.*\): test$/\1/p')
}
case "@VFIO@-@PART@" in
  none-*) unguarded ;;
  *-all) guarded "drives that fail, drives that are pulled, programs" @FILTERS@ ;;
  *-most) guarded "drives that fail, drives that are plugged, programs" --skip surprise --skip bus_error --skip bus_reset ;;
  *-pull) guarded "a drive that is pulled, errors and resets of its bus" surprise bus_error bus_reset ;;
esac
exit $failed
