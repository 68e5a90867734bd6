# shellcheck shell=bash
# Steps for a change: what each file can break. Sourced by .ci/run.

# The first pattern that a file's path matches gives its steps; `*` matches `/`, too. `all` and files without a pattern: all steps of every day.
# `links` are those tests of step `tests` that read documents alone.
readonly AFFECTED=(
  '.ci/language*.py|.ci/codespell.cfg'      'language'
  '.ci/surface*'                            'language docs'
  '.ci/kubernetes.py'                       'language kubernetes'
  '.ci/deny.toml|.ci/sbom*'                 'language'
  '.ci/*'                                   'all'
  'docs/tutorial.md|docs/c-and-cpp.md'      'language docs tutorial links'
  'docs/schemas/*|tests/schemas/*'          'language schemas'
  'docs/*|*.md'                             'language docs links'
  'LICENSE*|.gitignore|.dockerignore'       'links'
  '.clang-format|rustfmt.toml'              'format language'
  'findings/*'                              'language'
  'deploy/kubernetes/*'                     'language kubernetes'
  'deploy/*'                                'language'
  'fuzz/*'                                  'format language lint'
  'benches/nvshmem/*'                       'format language tests'
  'benches/*.rs'                            'format language lint'
  'benches/*'                               'language kernels'
  'examples/template/*'                     'language tutorial kernels'
  'examples/cpp/*'                          'language tests'
  'examples/kernels/*'                      'language tests compilers kernels tutorial examples'
  'examples/data/*'                         'tests job examples'
  'examples/*'                              'format language lint tests tutorial examples links'
  'bindings/build/*'                        'format language lint tests kernels features docs tutorial examples python'
  'bindings/device/*'                       'language tests compilers device_functions python'
  'bindings/c/*'                            'format language lint tests docs'
  'bindings/python/*'                       'format language lint python'
  'kernels/include/*'                       'language tests stress compilers kernels device_functions features tutorial examples job python rig'
  'kernels/*'                               'language tests compilers kernels features examples job python'
  'tests/device/*.rs'                       'format language lint tests stress'
  'tests/device/*'                          'language tests stress compilers kernels device_functions'
  'tests/rig/*'                             'language rig'
  'tests/campaign/*'                        'format language lint campaign'
  'tests/rig_rdma/*|tests/rdma_reference/*|tests/webgraph/*' 'format language lint'
  'tests/rig_*|tests/device_io.rs'          'format language lint tests rig'
  'tests/gpu/*|tests/launchers/*'           'language'
  'tests/pack/*'                            'language links'
  'tests/namespaces*'                       'format language lint tests stress'
  'tests/*'                                 'format language lint tests'
  'host/bin/*'                              'format language lint tests schemas docs job python'
  'host/graph/*'                            'format language lint tests schemas features docs examples job python'
  'host/shmem/*|host/rdma/*|host/soft/nic/*' 'format language lint tests schemas stress features docs campaign examples python'
  'host/*'                                  'format language lint tests schemas stress features docs campaign tutorial examples job python rig'
)

# Names the steps of a file.
steps_of() {
  local i pattern
  local -a patterns
  for ((i = 0; i < ${#AFFECTED[@]}; i += 2)); do
    IFS='|' read -ra patterns <<<"${AFFECTED[i]}"
    for pattern in "${patterns[@]}"; do
      # shellcheck disable=SC2053 # a pattern
      if [[ $1 == $pattern ]]; then
        echo "${AFFECTED[i + 1]}"
        return
      fi
    done
  done
  echo all
}

# Names the files that differ from a commit in this working tree, committed or not, also those that git does not know yet.
changed_files() {
  git diff --name-only --no-renames "$1" --
  git ls-files --others --exclude-standard
}

# Names the commit with which a working tree is compared unless told otherwise: where it left its upstream, or the last one.
base_of_change() {
  git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse HEAD~1
}

# Sets `steps` to what the change since a commit can break, in the usual order.
choose_steps() {
  local base files file wanted=" " step all
  base=$(git rev-parse --verify --quiet "${1:-$(base_of_change)}^{commit}") || die "no commit \`${1:-}\`; \`.ci/run changed\` takes one, or nothing"
  mapfile -t files < <(changed_files "$base" | sort -u)
  for file in "${files[@]}"; do
    all=$(steps_of "$file")
    [[ $all != all ]] || all="${ALL_STEPS[*]}"
    echo "ci: changed: $file: $([[ $all == "${ALL_STEPS[*]}" ]] && echo all steps || echo "$all")"
    wanted+="$all "
  done
  steps=()
  for step in "${ALL_STEPS[@]}" links; do
    # `tests` has the links, and every other step but `format` takes what `tools` installs.
    [[ $step != links || $wanted != *" tests "* ]] || continue
    [[ $step != tools || $wanted =~ [^\ ] ]] || continue
    if [[ $step == tools || $wanted == *" $step "* ]]; then steps+=("$step"); fi
  done
  echo "ci: changed since ${base:0:12}: ${#files[@]} files; steps: ${steps[*]:-none}"
}
