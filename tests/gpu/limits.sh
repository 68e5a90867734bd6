# Limits for the scripts of this folder: `limited SECONDS COMMAND` runs a command for at most that time, and never beyond the
# BUDGET seconds of the whole script. `check NAME SECONDS COMMAND` also tells the result and counts failures.
failures=0

limited() {
  local seconds=$1 left=$((BUDGET - SECONDS))
  shift
  if ((left < 2)); then
    echo "no time is left for: $*" >&2
    return 124
  fi
  timeout -k 2 "$((seconds < left ? seconds : left))" "$@"
}

check() {
  local name=$1
  shift
  echo "--- $name"
  if limited "$@"; then
    echo "ok: $name"
  else
    echo "FAILED ($?): $name"
    failures=$((failures + 1))
  fi
}

finish() {
  echo "$failures failure(s) in $SECONDS s"
  exit "$((failures > 0))"
}
