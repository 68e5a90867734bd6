# Runs in the guest, started by /init: the kernel's target over TCP, and tests of ours against it. Its status is the rig's.
export PATH=/rig:/usr/bin:/bin TMPDIR=/tmp RUST_BACKTRACE=1
failed=0
ip link set lo up
mount -t configfs none /sys/kernel/config || failed=1
cd /sys/kernel/config/nvmet || failed=1
subsystem=nqn.2026-01.org.example:rig
mkdir subsystems/$subsystem || failed=1
echo 1 > subsystems/$subsystem/attr_allow_any_host
mkdir subsystems/$subsystem/namespaces/1
echo -n /dev/ram0 > subsystems/$subsystem/namespaces/1/device_path || failed=1
echo 1 > subsystems/$subsystem/namespaces/1/enable || failed=1
mkdir ports/1
echo tcp > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo 127.0.0.1 > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/$subsystem ports/1/subsystems/$subsystem || failed=1
cd /
export WARPBELL_RIG_FABRICS=1
echo "RIG-TEST drives of other machines"
rig_fabrics --include-ignored --nocapture --test-threads=1 @FILTERS@ || { echo "RIG-FAILED rig_fabrics"; failed=1; }
dmesg | grep -E "nvmet|nvme" | tail -20
exit $failed
