# shellcheck shell=bash
# What several steps use. Sourced by .ci/run, in the root of the tree.

readonly WHEEL_FOLDER="${WARPBELL_CI_CUDA:-$PWD/target/ci/cuda}"
readonly WORD_FOLDER="$PWD/target/ci/words"
readonly TOOLS="$PWD/target/ci/tools" # of cargo
readonly ARCHS="80 90 100" # those that build.rs compiles for unless told otherwise
readonly ARCH=90           # every day: a quarter of an hour for all
# What the distribution has, oldest first. Every day the oldest and the newest of those that the tests do not use anyway.
readonly COMPILERS=(g++-11 g++-12 clang++-14 clang++-16 clang++-19)
readonly FEW_COMPILERS=(g++-11 clang++-19)

# Everything but the steps that are about nvcc builds without it: that is what most machines have, and it is quicker.
unset NVCC CUDA_HOME CUDA_PATH
with_nvcc() { CUDA_HOME="$WHEEL_FOLDER/nvidia/cu13" "$@"; }

die() {
  echo "ci: $*" >&2
  exit 1
}

# The command that stands after `$ ` in the README's first block that contains the given words.
readme_command() {
  sed -n 's/^\$ //p' README.md | grep -F -m 1 -- "$1" || die "README.md has no command line with \`$1\`"
}

# Shows a command's output and keeps it for a look afterwards.
shown() {
  echo "\$ $1"
  bash -o pipefail -c "$1 2>&1 | tee target/ci/last.txt"
}

# Installs the packages of programs that do not work: `works COMMAND -- PACKAGE...`, one call for each.
missing=()
works() {
  local command=()
  while [[ $1 != -- ]]; do
    command+=("$1")
    shift
  done
  shift
  "${command[@]}" >/dev/null 2>&1 </dev/null || missing+=("$@")
}

# The preprocessor finds a header.
header() {
  echo "#include <$1>" | c++ -E -x c++ - >/dev/null 2>&1
}

install_missing() {
  local root=()
  [[ $(id -u) == 0 ]] || root=(sudo)
  # The rig downloads kernels from where apt gets its packages, so apt has to know them.
  if ((${#missing[@]})) || ! apt-cache show linux-source-6.12 >/dev/null 2>&1; then
    "${root[@]}" apt-get update -q
  fi
  if ((${#missing[@]})); then
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
  fi
  missing=()
}

# Runs a program of the wheels for language and book.
words() {
  PYTHONPATH="$WORD_FOLDER" "$WORD_FOLDER/bin/$1" "${@:2}"
}

# Installs programs of a crate in this version: `cargo_tool CRATE VERSION OPTION...`.
cargo_tool() {
  # Some versions go on with `+` and the version of cargo's own crate.
  ! grep -qsE "^\"$1 ${2//./\\.}[ +]" "$TOOLS/.crates.toml" || return 0
  # Without debug information, most of a gigabyte.
  CARGO_PROFILE_DEV_DEBUG=none cargo install --quiet --debug --locked --root "$TOOLS" --target-dir target/ci/cargo-tool "$1" --version "$2" "${@:3}"
  rm -rf target/ci/cargo-tool
}
