# shellcheck shell=bash
# Two nodes of a cluster on one machine, for the scenarios of this folder. Each node has a network, a host name and mounts of its own. They
# share files, but for /run, /dev/shm and $TMPDIR. A cable joins them. All processes are in the PID namespace of the scenario.

# How long something may take that must happen, in seconds, however busy the machine is.
readonly LONG=200
# The search of the scenarios, and one that does not end by itself.
readonly SEARCH=(kron:10 --engine cpu --threads 1 --runs 2)
readonly ENDLESS=(kron:10 --engine cpu --threads 1 --runs 10000 --deadline 100s)

# Processes that keep the namespaces of a node.
declare -A keeper=()
# Output of the current job.
output=

die() {
  echo "FAILED: $*" >&2
  local number
  for number in 1 2; do
    echo "processes of node$number: $(processes "node$number" | paste -sd,)" >&2
  done
  if [[ -n $output && -e $output ]]; then
    echo "--- output of the job:" >&2
    grep -v "^source.*verified" "$output" | cut -c1-400 >&2
  fi
  exit 1
}

# Waits at most so many seconds until a command succeeds: `until_true SECONDS WHAT COMMAND...`.
until_true() {
  local within=$1 end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < end)) || die "not within $within s: $what"
    sleep 0.1
  done
}

# Brings up a node.
node() {
  mkdir -p "$work/$1/tmp"
  NODE=$1 WORK=$work unshare --net --uts --mount bash -euc '
    mount --make-rprivate /
    hostname "$NODE"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs -o mode=755 tmpfs /run
    mount --bind "$WORK/hosts" /etc/hosts
    ip link set lo up
    touch "$WORK/$NODE/up"
    exec sleep infinity' </dev/null &
  keeper[$1]=$!
  until_true $LONG "$1 is up" test -e "$work/$1/up"
}

# Brings up node1 and node2 with a cable between them.
nodes() {
  local number
  printf '127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n' >"$work/hosts"
  node node1
  node node2
  ip link add wire netns "${keeper[node1]}" type veth peer name wire netns "${keeper[node2]}"
  for number in 1 2; do
    on "node$number" ip addr add "10.77.0.$number/24" dev wire
    on "node$number" ip link set wire up
  done
  # mpirun reaches a node by this. As with ssh, the client stays when the node dies without a word.
  cat >"$work/bin/ssh" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
declare -A keeper=([node1]=${keeper[node1]} [node2]=${keeper[node2]})
node=\$1
shift
nsenter --target "\${keeper[\$node]}" --net --uts --mount env -i HOME=/root PATH="\$PATH" TMPDIR="$work/\$node/tmp" sh -c "\$*"
status=\$?
[[ ! -e $work/\$node/dead ]] || exec sleep infinity
exit \$status
END
  chmod +x "$work/bin/ssh"
  export HYDRA_LAUNCHER_EXEC=$work/bin/ssh OMPI_MCA_plm_rsh_agent=$work/bin/ssh
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# Runs a command on a node: `on node1 COMMAND...`.
on() { (enter "$@"); }

# Starts a job on a node, as the process $!, with its output in $output: `start node1 COMMAND...`.
start() { enter "$@" >>"$output" 2>&1 & }

# Becomes a command on a node.
enter() {
  export TMPDIR=$work/$1/tmp
  exec nsenter --target "${keeper[$1]}" --net --uts --mount -- "${@:2}"
}

# Prints the processes of a node but for its keeper: PID and name.
processes() {
  local net pid
  net=$(readlink "/proc/${keeper[$1]}/ns/net")
  for pid in /proc/[0-9]*; do
    [[ $(readlink "$pid/ns/net" 2>/dev/null) == "$net" && ${pid#/proc/} != "${keeper[$1]}" ]] || continue
    echo "${pid#/proc/} $(cat "$pid/comm" 2>/dev/null)"
  done
}

# Succeeds if a node has no process but those with these names.
has_only() {
  local node=$1 pid name
  shift
  while read -r pid name; do
    [[ " $* " == *" $name "* ]] || return 1
  done < <(processes "$node")
}

# Waits until a job has left nothing: processes other than those with the given names, shared memory, and files in $TMPDIR, where torchrun
# keeps its logs.
left_nothing() {
  local node left
  for node in node1 node2; do
    until_true $LONG "no process is left on $node" has_only "$node" "$@"
    left=$(on "$node" find /dev/shm "$work/$node/tmp" -mindepth 1 -not -path '*/torchelastic_*')
    [[ -z $left ]] || die "left on $node: $left"
  done
}

# The power of node2 fails: nobody hears of its processes' end.
kill_node2() {
  touch "$work/node2/dead"
  on node2 ip link set wire down
  local pid name
  until has_only node2; do
    while read -r pid name; do kill -KILL "$pid" 2>/dev/null || true; done < <(processes node2)
  done
}

# node2 has power again.
revive_node2() {
  rm -f "$work/node2/dead"
  rm -rf "$work/node2/tmp"
  mkdir "$work/node2/tmp"
  on node2 ip link set wire up
}

# Prints the output of the current job, or what follows a line that begins with these words.
since() {
  [[ ! -e $output ]] || awk -v begin="${1:-}" 'index($0, begin) == 1 { on = 1 } on' "$output"
}

# The current job has searched that often: `searched COUNT [SINCE]`.
searched() {
  (($(since "${2:-}" | grep -c "^source.*verified") >= $1))
}

# The current job has searched on four ranks of two nodes.
is_right() {
  grep -qE "^transport peer within hosts .*soft between 2 hosts \(tcp .* 4 PEs" "$output" || die "these are not four ranks of two nodes"
  grep -qE "all verified$" "$output" || die "the searches are not verified"
}

# So many ranks of node1 have reported one of node2: `named_by COUNT [SINCE]`.
named_by() {
  (($(since "${2:-}" | grep -cE "error: .*(PE|rank) [23]\b") >= $1))
}
