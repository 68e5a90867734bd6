# shellcheck shell=bash
# Words, documents and manifests. Sourced by .ci/run.

readonly KUBERNETES=kubernetes-validate==1.37.0

step_format() {
  cargo fmt --all --check
  # What names its interpreter in its first line is started by its path.
  local file
  for file in $(git grep -n '^#!/' | sed -n 's/:1:.*//p'); do
    [[ -x $file ]] || die "\`$file\` names its interpreter: chmod +x"
  done
}

# Names, comments, documents and messages, as CONTRIBUTING.md has them. Then violations that the checker has to find.
step_language() {
  python3 .ci/language.py
  python3 .ci/language_finds.py
  python3 .ci/floors.py
  python3 .ci/floors_finds.py
  local files
  mapfile -t files < <(git ls-files -- '*.rs' '*.cuh' '*.cu' '*.h' '*.hpp' '*.cpp' '*.cmake' '*.md' '*.py' '*.toml' '*.sh' .ci)
  words codespell --config .ci/codespell.cfg "${files[@]}"
  # Two headers are generated.
  mapfile -t files < <(git ls-files -- '*.cuh' '*.cu' '*.h' '*.hpp' '*.cpp' ':!*/abi_fields.h' ':!bindings/c/include/warpbell.h')
  words clang-format --dry-run --Werror "${files[@]}"
  echo "clang-format: ${#files[@]} files"
}

# The manifests of deploy/kubernetes, without a cluster.
step_kubernetes() {
  local folder=$PWD/target/ci/kubernetes
  if ! "$folder/bin/python3" -m pip show "${KUBERNETES%==*}" 2>/dev/null | grep -qx "Version: ${KUBERNETES#*==}"; then
    python3 -m venv --clear "$folder"
    "$folder/bin/python3" -m pip install --quiet "$KUBERNETES"
  fi
  "$folder/bin/python3" .ci/kubernetes.py
}

step_docs() {
  python3 .ci/surface_finds.py
  python3 .ci/surface.py # before the documentation of all features, which takes the same folder
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
  words mdbook build docs
}

# The tutorial's commands, as they are printed.
step_tutorial() {
  CARGO_TARGET_DIR="$PWD/target/template" python3 .ci/tutorial.py
}

# Documents alone: links, and what they show of the code. `tests` has these, too.
step_links() {
  shown "cargo test --locked --test repository"
}
