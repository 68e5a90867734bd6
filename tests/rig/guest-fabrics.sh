# Runs in the guest, started by /init: the kernel's target over TCP or over RDMA, and tests of ours against it. Its status is the rig's.
export PATH=/rig:/usr/bin:/bin TMPDIR=/tmp RUST_BACKTRACE=1
# The shell has an `ip` of its own, which does not know all devices.
ip() { /usr/bin/ip "$@"; }
failed=0
# RDMA registers memory by locking it.
ulimit -l unlimited
ip link set lo up
mount -t configfs none /sys/kernel/config || failed=1
# A disk in memory with blocks of 4096 bytes, beside /dev/ram0 with blocks of 512. Newer kernels name it after its folder.
big=/sys/kernel/config/nullb/big
mkdir $big || failed=1
echo 4096 > $big/blocksize && echo 1 > $big/memory_backed && echo 64 > $big/size && echo 1 > $big/power || failed=1
WARPBELL_RIG_BLOCKS_4096=/dev/big
[ -b $WARPBELL_RIG_BLOCKS_4096 ] || WARPBELL_RIG_BLOCKS_4096=/dev/nullb$(cat $big/index)
export WARPBELL_RIG_BLOCKS_4096
cd /sys/kernel/config/nvmet || failed=1
subsystem=nqn.2026-01.org.example:rig
mkdir subsystems/$subsystem || failed=1
echo 1 > subsystems/$subsystem/attr_allow_any_host
namespace() {
  mkdir subsystems/$subsystem/namespaces/$1
  echo -n $2 > subsystems/$subsystem/namespaces/$1/device_path || failed=1
  echo 1 > subsystems/$subsystem/namespaces/$1/enable || failed=1
}
namespace 1 /dev/ram0
namespace 2 $WARPBELL_RIG_BLOCKS_4096
# A port of transport $1 at address $2, and all tests through it.
port() {
  mkdir ports/1
  echo $1 > ports/1/addr_trtype
  echo ipv4 > ports/1/addr_adrfam
  echo $2 > ports/1/addr_traddr
  echo 4420 > ports/1/addr_trsvcid
  ln -s /sys/kernel/config/nvmet/subsystems/$subsystem ports/1/subsystems/$subsystem || failed=1
  echo "RIG-TEST drives of other machines over $1"
  WARPBELL_RIG_FABRICS=$1 rig_fabrics --include-ignored --nocapture --test-threads=1 @FILTERS@ || {
    echo "RIG-FAILED rig_fabrics over $1"
    failed=1
  }
  rm ports/1/subsystems/$subsystem && rmdir ports/1
}
tcp() {
  port tcp 127.0.0.1
}
rdma_() {
  # Packets as large as RoCE's largest MTU, 4096, and its headers. Target and initiators share the device: packets loop inside it.
  ip link add roce0 mtu 4200 type dummy && ip addr add 10.9.0.1/24 dev roce0 && ip link set roce0 up || failed=1
  rdma link add rxe0 type rxe netdev roce0 || failed=1
  rdma link
  port rdma 10.9.0.1
}
case "@PART@" in
  tcp) tcp ;;
  rdma) rdma_ ;;
  *)
    tcp
    rdma_
    ;;
esac
cd /
dmesg | grep -E "nvmet|nvme|rxe" | tail -20
exit $failed
