# shellcheck shell=bash
# Dependencies of all lock files. Part of `.ci/run long`. Sourced by .ci/run.

readonly CARGO_DENY=0.20.2 CARGO_SBOM=0.10.0
# The advisory database comes from outside of all registries.
readonly ADVISORY_LIMIT_S=120
readonly ADVISORY_FOLDER="${CARGO_HOME:-$HOME/.cargo}/advisory-dbs"

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
