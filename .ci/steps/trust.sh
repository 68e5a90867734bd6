# shellcheck shell=bash
# Random faults; dependencies of all lock files, and unsafe code under Miri, which are parts of `.ci/run long`. Sourced by .ci/run.

readonly CARGO_DENY=0.20.2 CARGO_SBOM=0.10.0
# The advisory database comes from outside of all registries.
readonly ADVISORY_LIMIT_S=120
readonly ADVISORY_FOLDER="${CARGO_HOME:-$HOME/.cargo}/advisory-dbs"
# Tests that reach the unsafe blocks of host/memory and host/storage which work on memory alone. host/wire has none. The other blocks call
# the operating system or the driver, or launch kernels, which are C++.
readonly MIRI_TESTS=(memory::copy memory::mapping::syscalls memory::mapping::tests memory::region memory::space
  storage::volume::segments::list storage::volume::segments::memory)
# Miri maps no files and knows no ioctl. The last takes minutes, and reaches no other code than `each_backend_maps`. The loads of SSE4.1
# (`copy_out_wide`) and string instructions are replaced by loops.
readonly MIRI_SKIPPED=(a_file_is_mapped_shared the_machines_own_calls_answer_errors gdrdrvs_handles_are_pages)
readonly MIRI_LIMIT_S=3600

# First runs of each campaign, every day the same: two minutes on two processors. Time for each in `.ci/run long`.
readonly CAMPAIGN_RUNS=(faults:80 sequences:40 crashes:256 worlds:12 hostile:8) LONG_CAMPAIGN_TIME=${WARPBELL_CAMPAIGN_TIME:-20m}

step_campaign() {
  local runs
  for runs in "${CAMPAIGN_RUNS[@]}"; do
    shown "cargo test --locked --test campaign -- ${runs%:*} --runs ${runs#*:}"
    grep -qE "^campaign: ${runs#*:} runs.* 0 wrong" target/ci/last.txt || die "not all runs of campaign \`${runs%:*}\` were made"
  done
}

# More of them, behind those of the last time: target/ci/campaign.json has the totals.
step_campaign_long() {
  shown "cargo test --locked --test campaign -- --time $LONG_CAMPAIGN_TIME --state target/ci/campaign.json"
}

# cargo-deny on the packages of a manifest: `deny_check MANIFEST OPTION... CHECK...`. Prints the outcome of each check.
deny_check() {
  local manifest=$1 options=()
  shift
  # The template has no lock file in the repository.
  [[ $manifest == examples/template/* ]] || options+=(--locked)
  echo -n "$manifest: "
  cargo deny --manifest-path "$manifest" --config .ci/deny.toml "${options[@]}" "${deny_options[@]}" check --hide-inclusion-graph \
    -A license-exception-not-encountered -A advisory-not-detected "$@" 2>&1
}
deny_options=()

# Licences, duplicates and sources of the packages of each lock file, by .ci/deny.toml; then known vulnerabilities.
step_dependencies() {
  local manifest manifests=() said=target/ci/advisories.txt
  cargo_tool cargo-deny "$CARGO_DENY"
  export PATH="$TOOLS/bin:$PATH"
  mapfile -t manifests < <(git ls-files -- Cargo.lock '*/Cargo.lock' | sed 's/lock$/toml/')
  manifests+=(examples/template/Cargo.toml)
  # The workspace is what users compile: duplicates count there, and an entry of the lists that nothing needs.
  deny_check Cargo.toml -D unmatched-skip -D unnecessary-skip -D license-not-encountered bans licenses sources
  for manifest in "${manifests[@]}"; do
    [[ $manifest != Cargo.toml ]] || continue
    deny_check "$manifest" -A duplicate -A unmatched-skip -A unnecessary-skip -A license-not-encountered bans licenses sources
  done
  # Without a connection it is an older copy, which cargo-deny refuses 90 days after it was fetched.
  if ! timeout "$ADVISORY_LIMIT_S" cargo deny --config .ci/deny.toml fetch db >"$said" 2>&1 &&
    ! compgen -G "$ADVISORY_FOLDER/*/.git" >/dev/null; then
    cat "$said"
    echo "dependencies: NOT checked for known vulnerabilities: the advisory database could not be fetched. Run \`.ci/run dependencies\` on a" \
      "machine that reaches it, or copy its clone to $ADVISORY_FOLDER. ${#manifests[@]} lock files passed all other checks"
    return
  fi
  echo "advisories of $(git -C "$(dirname "$(compgen -G "$ADVISORY_FOLDER/*/.git" | head -n 1)")" log -1 --format=%cs)"
  deny_options=(--offline)
  for manifest in "${manifests[@]}"; do
    deny_check "$manifest" advisories
  done
  echo "dependencies: ${#manifests[@]} lock files"
}

# Bills of materials of what is shipped, in target/ci/sbom, compared with Cargo.lock.
step_sbom() {
  cargo_tool cargo-sbom "$CARGO_SBOM"
  export PATH="$TOOLS/bin:$PATH"
  python3 .ci/sbom_finds.py
  python3 .ci/sbom.py target/ci/sbom
}

# Unsafe code under Miri: accesses out of bounds, to freed and to uninitialised memory, data races, and aliasing rules.
step_miri() {
  local skip=() name
  if ! cargo +nightly miri --version 2>/dev/null &&
    ! rustup component add --toolchain nightly miri rust-src &&
    ! rustup toolchain install nightly --profile minimal --component miri,rust-src; then
    echo "miri: NOT run: no nightly Rust with the components miri and rust-src, and rustup does not reach its server. Run \`.ci/run miri\` on a" \
      "machine that has them"
    return
  fi
  for name in "${MIRI_SKIPPED[@]}"; do skip+=(--skip "$name"); done
  # Tests of files use the machine's. Addresses in structures of modules and kernels are integers. Miri (nightly of May 2026) crashes where
  # atomic stores of one and of eight bytes follow each other, unless it leaves out the emulation of late stores.
  export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-disable-weak-memory-emulation"
  shown "PROPTEST_CASES=1 timeout $MIRI_LIMIT_S cargo +nightly miri test --locked -p warpbell --lib --no-default-features \
    --features cuda-12080,internals,storage -- ${MIRI_TESTS[*]} ${skip[*]}"
  echo "miri: left out ${MIRI_SKIPPED[*]}"
  grep -E "^test result: ok. [3-9][0-9] passed" target/ci/last.txt || die "fewer than 30 tests ran under Miri"
}
