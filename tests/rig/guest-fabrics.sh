# Runs in both guests, started by /init: the target has the kernel's target over TCP or over RDMA, the host runs tests of ours against it. Two
# networks join them, 10.8.0.0/24 and 10.8.1.0/24; the target is number 1 in both. The host's status is the rig's.
export PATH=/rig:/usr/bin:/bin TMPDIR=/tmp RUST_BACKTRACE=1
# The shell has an `ip` of its own, which does not know all devices.
ip() { /usr/bin/ip "$@"; }
failed=0
transport=@PART@
# RDMA registers memory by locking it.
ulimit -l unlimited
ip link set lo up
# This machine is number $1 in both networks, and has an RDMA device at each.
networks() {
  for n in 0 1; do
    ip addr add 10.8.$n.$1/24 dev eth$n && ip link set eth$n up || failed=1
    [ $transport = tcp ] || rdma link add rxe$n type rxe netdev eth$n || failed=1
  done
  [ $transport = tcp ] || rdma link
}
# Namespace $2 of subsystem $1 is block device $3.
namespace() {
  mkdir subsystems/$1/namespaces/$2
  echo -n $3 > subsystems/$1/namespaces/$2/device_path || failed=1
  echo 1 > subsystems/$1/namespaces/$2/enable || failed=1
}
# Port $1 is at address $2 and port number $3, for the subsystems behind these.
port() {
  mkdir ports/$1
  echo $transport > ports/$1/addr_trtype
  echo ipv4 > ports/$1/addr_adrfam
  echo $2 > ports/$1/addr_traddr
  echo $3 > ports/$1/addr_trsvcid
  at=ports/$1
  shift 3
  for name in "$@"; do
    ln -s /sys/kernel/config/nvmet/subsystems/$name $at/subsystems/$name || failed=1
  done
}
target() {
  networks 1
  mount -t configfs none /sys/kernel/config || failed=1
  # A disk in memory with blocks of 4096 bytes, beside /dev/ram0 with blocks of 512. Newer kernels name it after its folder.
  big=/sys/kernel/config/nullb/big
  mkdir $big || failed=1
  echo 4096 > $big/blocksize && echo 1 > $big/memory_backed && echo 64 > $big/size && echo 1 > $big/power || failed=1
  disk=/dev/big
  [ -b $disk ] || disk=/dev/nullb$(cat $big/index)
  ln -s $disk /dev/blocks-of-4096
  cd /sys/kernel/config/nvmet || failed=1
  subsystem=nqn.2026-01.org.example:rig
  second=nqn.2026-01.org.example:second
  for name in $subsystem $second; do
    mkdir subsystems/$name || failed=1
    echo 1 > subsystems/$name/attr_allow_any_host
  done
  namespace $subsystem 1 /dev/ram0
  namespace $subsystem 2 $disk
  namespace $second 1 /dev/ram1
  port 1 10.8.0.1 4420 $subsystem $second
  port 2 10.8.0.1 4421 $subsystem
  port 3 10.8.1.1 4420 $subsystem
  [ $failed = 0 ] || return
  # A line of shell from the host, with input behind it; the reply is its output and, in a last line, its status.
  printf '#!/bin/sh\nread -r line\neval "$line"\nprintf "\\n%%s" $?\n' > /tmp/serve && chmod +x /tmp/serve
  echo "RIG-TARGET"
  nc -ll -p 99 -e /tmp/serve
  failed=1
}
# Runs a line of shell on the target.
on_target() { echo "$1" | nc -w 5 10.8.1.1 99; }
host() {
  networks 2
  tries=0
  until [ "$(on_target "echo ready" | head -n 1)" = ready ]; do
    tries=$((tries + 1))
    [ $tries -lt 120 ] || { echo "RIG-FAILED the target says nothing"; exit 1; }
    sleep 1
  done
  echo "RIG-TEST drives of another machine over $transport"
  WARPBELL_RIG_FABRICS=$transport rig_fabrics --include-ignored --nocapture --test-threads=1 @FILTERS@ || {
    echo "RIG-FAILED rig_fabrics over $transport"
    failed=1
  }
  on_target 'dmesg | grep -E "nvmet|rxe" | tail -n 20'
  dmesg | grep -E "nvme|rxe" | tail -n 20
}
$RIG_ROLE
exit $failed
