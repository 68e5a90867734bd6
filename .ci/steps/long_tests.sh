# shellcheck shell=bash
# Tests of the Rust library that `.ci/run long` has beside those of every day. Sourced by .ci/run.

# Modules whose unit tests need no device of this machine, and tests there that QEMU's user mode cannot run.
readonly ARM64_MODULES=(wire:: memory:: engine:: nvme:: soft:: this_host:: units:: idle:: spec:: handshake::)
readonly ARM64_SKIPPED=(qtest the_machines_own_calls_answer_errors memory_is_the_kernels_to_refuse
  a_request_that_a_file_does_not_know_is_an_error what_is_written_is_in_the_file another_process_is_reached_and_missed a_forked_child)
readonly PROCESSORS=(1 2 16 64)

# Descriptions of C in Rust: the committed structures that kernels share are those that bindgen makes of the headers; the declarations of RDMA's
# libraries agree with rdma-sys and the C headers. Nothing else needs them, nor libclang, so they come last. The bindgen of rdma-sys reads C
# with libclang 14 and fails with 16 and newer.
step_reference() {
  local llvm=/usr/lib/llvm-14/lib reference=tests/rdma_reference/Cargo.toml bindgen
  works header infiniband/verbs.h -- libibverbs-dev
  works header rdma/rdma_cma.h -- librdmacm-dev
  works python3 -c "import ctypes; ctypes.CDLL('$llvm/libclang.so.1')" -- libclang-14-dev
  install_missing
  bindgen=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' host/engine/abi/generate)
  export PATH="$TOOLS/bin:$PATH"
  cargo_tool bindgen-cli "${bindgen#bindgen }"
  shown "LIBCLANG_PATH=$llvm host/engine/abi/generate --check"
  cargo fmt --check --manifest-path "$reference"
  shown "LIBCLANG_PATH=$llvm cargo test --locked --target-dir target --manifest-path $reference"
  # The program links none of them.
  cargo build --locked --bin warpbell
  if readelf -d target/debug/warpbell | grep -E "NEEDED.*(verbs|mlx5|rdmacm)"; then
    die "the program links a verbs library"
  fi
}

# BVGraphs that the crate webgraph writes. It brings more than a hundred crates, which no other test compiles.
step_webgraph() {
  cargo fmt --check --manifest-path tests/webgraph/Cargo.toml
  shown "cargo test --locked --target-dir target --manifest-path tests/webgraph/Cargo.toml"
}

# Tests of families alone compile, and what says that its feature is off is tested.
step_families() {
  local features
  for features in "" storage shmem soft graph parquet doctor storage,soft shmem,soft graph,shmem; do
    echo "features: ${features:-none}"
    # Tests have `internals`, and whoever embeds a family has not.
    DOCS_RS=1 cargo check --locked -p warpbell --lib --no-default-features --features "cuda-12080,$features"
    DOCS_RS=1 cargo clippy --locked -p warpbell --all-targets --no-default-features --features "cuda-12080,internals,$features" -- -D warnings
  done
  shown "cargo test --locked -p warpbell --lib --no-default-features --features cuda-12080,internals,parquet -- graph::import::columnar graph::output_parquet"
  grep -qE "^test result: ok. [1-9]" target/ci/last.txt || die "no test of feature \`parquet\` ran"
  # Without a version of CUDA it is that of the machine, or the newest.
  cargo check --locked -p warpbell --lib --no-default-features --features storage,shmem
  shown "cargo test --locked -p warpbell --lib --no-default-features --features cuda-12080,internals,storage,shmem names_its_feature"
  grep -q "^test result: ok. 2 passed" target/ci/last.txt || die "not both kinds of software devices were asked for"
}

# Benchmarks link. Every day clippy compiles them.
step_benches() {
  # The others, so that the library is the one of the tests.
  cargo bench --locked --no-run --profile dev -p warpbell -p warpbell-build -p warpbell-c -p warpbell-benches --bench '*'
}

# Tests of the Rust library where the program takes the machine for a smaller or a larger one, but for programs of the device library
# alone, which do not ask.
step_processors() {
  local tests count
  tests=$(readme_command "cargo test")
  for count in "${PROCESSORS[@]}"; do
    [[ $count != "$(nproc)" ]] || continue # as in step_tests
    shown "WARPBELL_PROCESSORS=$count RAYON_NUM_THREADS=$count $tests -p warpbell -- --skip under_thread_sanitizer --skip every_schedule --skip every_mistake"
  done
}

# Host code and CPU engine for ARM64, and their unit tests under QEMU's user mode.
step_arm64() {
  local target=aarch64-unknown-linux-gnu
  # Debian 12's own library for ARM64 (libstd-rust-dev) is of Rust 1.63, and cannot be used with this compiler.
  if ! rustup target list --installed | grep -qx "$target"; then
    rustup target add "$target" || die "no Rust library for $target: \`rustup target add $target\` has to reach Rust's server"
  fi
  missing=()
  works aarch64-linux-gnu-g++ --version -- g++-aarch64-linux-gnu
  works qemu-aarch64 --version -- qemu-user
  ((${#missing[@]} == 0)) || install_missing
  aarch64-linux-gnu-g++ --version | head -n 1
  qemu-aarch64 --version | head -n 1
  # What QEMU's user mode lacks: it knows no ioctl of VFIO and none of unknown numbers, and no pwritev2, and a test program that starts
  # itself again is of another processor. Tests of devices have the machine's.
  local skip=() name
  for name in "${ARM64_SKIPPED[@]}"; do skip+=(--skip "$name"); done
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-g++
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
  shown "cargo test --locked --target $target -p warpbell --lib -- ${ARM64_MODULES[*]} ${skip[*]}"
  echo "arm64: modules ${ARM64_MODULES[*]}"
  echo "arm64: left out ${ARM64_SKIPPED[*]}"
  grep -E "^test result: ok. [1-9][0-9]{2,} passed" target/ci/last.txt || die "fewer than 100 tests ran on ARM64"
}

# Everything again and again, as it runs on machines without Rust. Stress programs are compiled in the first round.
step_soak() {
  local round without=()
  tests/pack/make --no-archive
  export WARPBELL_KEPT_PROGRAMS=$PWD/target/ci/programs
  for round in 1 2 3; do
    echo "round $round"
    shown "target/pack/warpbell-tests/run --long --logs target/ci/logs ${without[*]}"
    # The searches visit the same states each time.
    without=(--without model::)
  done
}

# Property tests with 256 times their cases, and tests of combinations with all of theirs.
step_properties() {
  shown "PROPTEST_CASES=4096 cargo test --locked --lib"
}

# A minute for each target, or WARPBELL_FUZZ_SECONDS; inputs that reached new code stay in fuzz/corpus. libFuzzer wants options of the
# compiler that only nightly ones take without being told to.
step_fuzz() {
  local target
  export PATH="$TOOLS/bin:$PATH"
  cargo fuzz --version 2>/dev/null || cargo install --quiet --locked --root "$TOOLS" cargo-fuzz
  for target in fuzz/fuzz_targets/*.rs; do
    # The driver leaks queues on purpose that a hostile controller does not delete: 33 KiB a run of target `controller`.
    shown "RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none $(basename "$target" .rs) -- -max_total_time=${WARPBELL_FUZZ_SECONDS:-60} -rss_limit_mb=8192 -print_final_stats=1"
  done
}
