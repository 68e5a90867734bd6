# shellcheck shell=bash
# The Rust library, its program, and what is built of them. Sourced by .ci/run.

# All packages of the workspace, which turns on `parquet`; then fuzz targets.
step_lint() {
  cargo clippy --locked --workspace --all-targets -- -D warnings
  # No target of `cargo test` by itself.
  cargo clippy --locked --test campaign -- -D warnings
  cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target -- -D warnings
}

# The Rust library without families, with one and without its kernels, as on docs.rs: no kernel is compiled. `-p`: the C interface needs all
# families. The long run has each, alone and with those that they work with.
step_features() {
  local what packed most=3550000
  python3 .ci/one_library.py
  DOCS_RS=1 cargo check --locked -p warpbell --lib --no-default-features --features cuda-12080
  # All families without `internals`, as bindings have them: what only tests and tools use is not compiled.
  DOCS_RS=1 cargo rustc --locked -p warpbell --lib --profile check --no-default-features --features cuda-12080,storage,shmem,parquet,soft,doctor,nvml -- -D warnings
  # Whoever wants puts and gets alone, and has kernels of their own.
  what=$(cargo check --locked -p warpbell --lib --no-default-features --features cuda-12080,shmem --message-format=json-render-diagnostics |
    python3 .ci/build_folder.py warpbell)
  [[ -z $(find "$what" -name "*.o" -o -name "*.fatbin" -size +0) ]] || die "a build without images compiled kernels, in $what"
  if cargo tree --locked --package warpbell --edges normal --prefix none --no-default-features --features shmem | grep -E "^(rayon|rand|io-uring|clap) "; then
    die "feature \`shmem\` alone needs what it has no use for"
  fi
  # A family's kernels are compiled only with its feature.
  what=$(cargo check --locked -p warpbell --lib --no-default-features --features cuda-12080,shmem,cpu-image --message-format=json-render-diagnostics |
    python3 .ci/build_folder.py warpbell)
  if grep -E "/kernels/(storage|graph|bench)/" "$what/warpbell_image.cu" || ! grep -q "/kernels/shmem/" "$what/warpbell_image.cu"; then
    die "the image of feature \`shmem\` has other kernels than those of worlds"
  fi
  rm -f target/package/*.crate
  cargo package --locked --quiet --no-verify --allow-dirty
  [[ -f $(echo target/package/warpbell-build-*.crate) ]] || die "cargo package made no package of warpbell-build"
  packed=$(stat -c %s target/package/warpbell-[0-9]*.crate)
  echo "the package has $packed bytes"
  ((packed < most)) || die "the package has more than $most bytes"
}

# QEMU's controller, ThreadSanitizer and MPI are part of the tests; where they are missing the tests fail.
export WARPBELL_REQUIRE_QEMU=1 WARPBELL_REQUIRE_TSAN=1 WARPBELL_REQUIRE_MPI=1

# The README's command.
step_tests() {
  local tests
  tests=$(readme_command "cargo test")
  shown "$tests"
  echo "of these:"
  grep -E "^test .*(thread_sanitizer|qemu|qtest).* ok$" target/ci/last.txt || die "no test under ThreadSanitizer or over QEMU ran"
  grep -qE "^test .*thread_sanitizer.* ok$" target/ci/last.txt || die "no test under ThreadSanitizer ran"
}

# Reports of the program, compared with their schemas.
step_schemas() {
  local manifest=tests/schemas/Cargo.toml
  cargo fmt --check --manifest-path "$manifest"
  cargo clippy --locked --target-dir target --manifest-path "$manifest" --all-targets -- -D warnings
  shown "cargo test --locked --target-dir target --manifest-path $manifest"
}

# Queues and caches under ThreadSanitizer for longer, at the largest warp width; tables, graphs and exchanges briefly. Other widths, the
# cache for twice as long, the other programs of the device library and worlds of up to eight processes are part of the soak.
step_stress() {
  shown "cargo test --locked --test device --test namespaces -- --ignored queue::under_thread_sanitizer_at_width_32 \
    cache::briefly_under_thread_sanitizer_at_width_32 briefly_under_thread_sanitizer_at_width_4 refusals_without a_pulled_cable"
  grep -qE "^test .*thread_sanitizer_at_width_32 .* ok$" target/ci/last.txt || die "no long test under ThreadSanitizer ran"
}

step_job() {
  local job
  job=$(readme_command "graph bfs")
  shown "$job"
  grep -q "reached 33,695 .* verified (GAP rules)" target/ci/last.txt || die "the main job's result is not verified"
}

step_examples() {
  local source name
  for source in examples/*.rs; do
    name=$(basename "$source" .rs)
    shown "cargo run --locked --quiet --example $name"
    grep -q "correct" target/ci/last.txt || die "example $name did not say that its result is correct"
  done
}
