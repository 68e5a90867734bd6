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
second=nqn.2026-01.org.example:second
for name in $subsystem $second; do
  mkdir subsystems/$name || failed=1
  echo 1 > subsystems/$name/attr_allow_any_host
done
# Namespace $2 of subsystem $1 is block device $3.
namespace() {
  mkdir subsystems/$1/namespaces/$2
  echo -n $3 > subsystems/$1/namespaces/$2/device_path || failed=1
  echo 1 > subsystems/$1/namespaces/$2/enable || failed=1
}
namespace $subsystem 1 /dev/ram0
namespace $subsystem 2 $WARPBELL_RIG_BLOCKS_4096
namespace $second 1 /dev/ram1
# Port $1 of transport $2 at address $3 and port number $4, for the subsystems behind these.
port() {
  mkdir ports/$1
  echo $2 > ports/$1/addr_trtype
  echo ipv4 > ports/$1/addr_adrfam
  echo $3 > ports/$1/addr_traddr
  echo $4 > ports/$1/addr_trsvcid
  at=ports/$1
  shift 4
  for name in "$@"; do
    ln -s /sys/kernel/config/nvmet/subsystems/$name $at/subsystems/$name || failed=1
  done
}
# All tests over transport $1.
tests() {
  echo "RIG-TEST drives of other machines over $1"
  WARPBELL_RIG_FABRICS=$1 rig_fabrics --include-ignored --nocapture --test-threads=1 @FILTERS@ || {
    echo "RIG-FAILED rig_fabrics over $1"
    failed=1
  }
  rm ports/*/subsystems/* && rmdir ports/*
}
tcp() {
  port 1 tcp 127.0.0.1 4420 $subsystem $second
  port 2 tcp 127.0.0.1 4421 $subsystem
  # A host with two networks of its own to the target: namespace `far` with near0-far0 and near1-far1.
  mkdir -p /run/netns && ip netns add far || failed=1
  for n in 0 1; do
    ip link add near$n type veth peer name far$n netns far || failed=1
    ip addr add 10.8.$n.1/24 dev near$n && ip link set near$n up || failed=1
    ip -n far addr add 10.8.$n.2/24 dev far$n && ip -n far link set far$n up || failed=1
    port 1$n tcp 10.8.$n.1 4420 $subsystem
  done
  tests tcp
  ip netns del far
}
rdma_() {
  # Packets as large as RoCE's largest MTU, 4096, and its headers. Target and initiators share the device: packets loop inside it.
  ip link add roce0 mtu 4200 type dummy && ip addr add 10.9.0.1/24 dev roce0 && ip link set roce0 up || failed=1
  rdma link add rxe0 type rxe netdev roce0 || failed=1
  rdma link
  port 1 rdma 10.9.0.1 4420 $subsystem $second
  port 2 rdma 10.9.0.1 4421 $subsystem
  tests rdma
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
