# shellcheck shell=bash
# Ends what hangs. Sourced by .ci/run.

# The processes that a process has started, and theirs, without the watch.
descendants() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    [[ $child != "${2:-}" ]] || continue
    echo "$child"
    descendants "$child"
  done
}

# Something that hangs has to be seen, and must not keep others waiting: when the time is over, whatever runs is named and ended, so that the
# step fails.
watching="" # its process group
watch() {
  set -m
  {
    sleep "$limit_s"
    set +e # some end by themselves meanwhile
    local me=$BASHPID child all
    # Whoever killed this script outright has left the watch behind, and its number to others.
    cat /proc/$$/task/*/children 2>/dev/null | grep -qw "$me" || exit 0
    all=$(descendants $$ "$me")
    echo "ci: not over after $limit_s s; what runs:"
    for child in $all; do
      echo "  $child $(tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | head -c 300)"
    done
    # shellcheck disable=SC2086 # a list
    kill $all
    sleep 30
    # shellcheck disable=SC2046 # a list
    kill -KILL $(descendants $$ "$me")
  } >&2 </dev/null &
  set +m
  watching=$!
}

ended() {
  local group
  for group in $preparing $watching; do
    kill -- "-$group" 2>/dev/null || true
  done
}

failed() {
  ended
  echo "ci: FAILED in step $step" >&2
}
