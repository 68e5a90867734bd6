# shellcheck shell=bash
# What users install: the C interface, the Debian package, the container, the Python package. Sourced by .ci/run.

# Installs the C interface. Later versions need a newer Rust than Cargo.toml promises.
readonly CARGO_C=0.10.24

# The Python package as its users have it: a wheel in a new environment with numpy alone.
step_python() {
  shown "WARPBELL_PYTHON_PROFILE=dev bindings/python/tests/run"
  grep -qE "^[0-9]+ passed" target/ci/last.txt || die "not all tests of the Python package passed"
}

# --- .ci/run long

# The C interface as its users have it: installed, moved, and linked by C and C++ programs. Then the Debian package.
step_c() {
  cargo_tool cargo-c "$CARGO_C" --bin cargo-cinstall
  export PATH="$TOOLS/bin:$PATH"
  local c_compilers=("${FEW_COMPILERS[@]/#g++/gcc}")
  c_compilers=("${c_compilers[@]/clang++/clang}")
  shown "C_COMPILERS='${c_compilers[*]}' CXX_COMPILERS='${FEW_COMPILERS[*]}' WARPBELL_TEST_CUDA=$WHEEL_FOLDER/nvidia/cu13 WARPBELL_CUDA_ARCHS=$ARCH \
    bindings/c/tests/install/run"
  shown "deploy/deb/test"
}

container_tools() {
  works buildah --version -- buildah
  works debootstrap --version -- debootstrap
  install_missing
  cargo_tool cargo-c "$CARGO_C" --bin cargo-cinstall
  export PATH="$TOOLS/bin:$PATH" WARPBELL_CONTAINERS="$PWD/target/ci/container"
}

# The image's second stage, with the Debian package of a debug build, without a daemon and a registry; a search and the doctor inside.
step_containers() {
  container_tools
  rm -rf target/ci/package
  deploy/deb/make --debug target/ci/package >target/ci/last.txt 2>&1 || { cat target/ci/last.txt; die "no package"; }
  shown "deploy/container/test target/ci/package/warpbell_*.deb"
}

# Both stages: Rust compiles inside, which takes many minutes.
step_containers_whole() {
  container_tools
  shown "PROFILE=--debug deploy/container/test --whole"
}

# As it is released, beside libraries that take its results.
step_python_with_others() {
  shown "bindings/python/tests/run scipy networkx pyarrow ml_dtypes torch torch_geometric cuda-core mpi4py mpich"
  grep -qE "^[0-9]+ passed" target/ci/last.txt || die "not all tests of the Python package passed"
}

# The plug-ins are tested with stand-ins for LMCache and vLLM: these have the interfaces of the packages, whose sources are compared.
step_python_servers() {
  local wheels=target/ci/servers python=target/python/tested/bin/python
  mkdir -p "$wheels"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" lmcache==0.5.6 vllm==0.33.0
  shown "$python bindings/python/tests/server_interfaces.py $wheels/lmcache-0.5.6-*.whl $wheels/vllm-0.33.0-*.whl"
}

# A wheel that runs on other machines: compiled and linked by zig, with its libc++ inside. The kernels for CPU threads are clang's then.
step_python_manylinux() {
  shown "WARPBELL_PYTHON_MANYLINUX=2_28 WARPBELL_PYTHON_PROFILE=dev bindings/python/tests/run"
  grep -q "^runs with glibc 2.28 and newer" target/ci/last.txt || die "the wheel was not checked for glibc 2.28"
  grep -qE "^[0-9]+ passed" target/ci/last.txt || die "not all tests of the Python package passed"
}
