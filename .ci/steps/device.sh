# shellcheck shell=bash
# Kernels and the device library under nvcc and C++ compilers. Sourced by .ci/run.

readonly TRITON=triton==3.6.0
# Every day the machine code of these families; of the others PTX, which takes a fifth of the time. The long run has all.
readonly IMAGE_FEATURES=cuda-12080,storage,shmem,soft,cpu-image,require-cuda

# nvcc compiles the kernels of these features; the build fails where it cannot, and the image holds what it should.
compiled_for() {
  local images image
  images=$(WARPBELL_CUDA_ARCHS=$1 with_nvcc cargo check --locked -p warpbell --lib "${@:2}" --message-format=json-render-diagnostics |
    python3 .ci/build_folder.py warpbell)
  for image in "$images"/warpbell_image/*.fatbin "$images/warpbell_examples_image.fatbin"; do
    python3 .ci/image_archs.py "$image" "$1"
  done
}

# All kernels for one generation of GPUs, the headers for each.
step_kernels() {
  if [[ -z $(command -v nvcc) ]] && cargo check --locked -p warpbell --lib --no-default-features --features "$IMAGE_FEATURES" >target/ci/last.txt 2>&1; then
    die "a build with --features require-cuda passed without nvcc"
  fi
  compiled_for $ARCH --no-default-features --features "$IMAGE_FEATURES"
  find kernels/graph kernels/bench -name '*.cu' -print0 | xargs -0 -P "$(nproc)" -I{} "$WHEEL_FOLDER/nvidia/cu13/bin/nvcc" -std=c++17 -O3 \
    -ptx -arch=sm_$ARCH -Werror all-warnings -I kernels/include -o /dev/null {} || die "a kernel does not compile"
  # A package of its own, as its author builds it.
  local arch package
  package=$(WARPBELL_CUDA_ARCHS=$ARCH with_nvcc cargo check --manifest-path examples/template/Cargo.toml --target-dir target/template \
    --message-format=json-render-diagnostics | python3 .ci/build_folder.py my-program)
  python3 .ci/image_archs.py "$package/my_image.fatbin" $ARCH
  # Side by side: each of these calls one compiler after the other. What a test runs on GPUs takes seconds to compile.
  local nvcc="$WHEEL_FOLDER/nvidia/cu13/bin/nvcc" flags="-std=c++17 -O3 -arch=sm_$ARCH -Werror all-warnings -I kernels/include"
  {
    for arch in $ARCHS; do
      echo "python3 .ci/whole_and_alone.py '$WHEEL_FOLDER/nvidia/cu13' tests/device/neighbours.cu $arch"
    done
    echo "python3 .ci/ptx_snapshot.py '$nvcc'"
    echo "'$nvcc' $flags --fatbin -o target/ci/mlx5_entries.fatbin tests/device/mlx5_entries.cu"
    for bench in hit_path bulk_copies; do
      echo "'$nvcc' $flags -c -o target/ci/$bench.o benches/$bench.cu"
    done
  } | xargs -d '\n' -P "$(nproc)" -I{} bash -c '{}' || die "a program of the tests does not compile as it should; see above"
  # The headers as they are installed, beside those of CUDA.
  shown "WARPBELL_TEST_CUDA=$WHEEL_FOLDER/nvidia/cu13 cargo test --locked --test device headers:: -- --include-ignored"
}

# Flat functions for kernels of other compilers: bitcode by clang and a cubin by nvcc, with the symbols of both. Half a minute of a processor.
# clang looks for a toolkit in PATH; one that is newer than clang changes nothing.
step_device_functions() {
  local folder=target/ci/device file=libwarpbell_device_sm_$ARCH.bc
  bindings/device/make $folder --archs $ARCH --clang clang++-19 --cuda "$WHEEL_FOLDER/nvidia/cu13"
  PATH="$WHEEL_FOLDER/nvidia/cu13/bin:$PATH" bindings/device/make $folder/beside_cuda --archs $ARCH --only bitcode --clang clang++-19
  cmp "$folder/$file" "$folder/beside_cuda/$file" || die "bitcode depends on the CUDA toolkit in PATH"
}

# Each header by itself, as a user installs it, with each of these compilers.
headers_with() {
  local compiler
  for compiler in "$@"; do
    shown "WARPBELL_TEST_CXX=$compiler cargo test --locked --test device headers::" # with CXX, cargo would build all again
  done
}

# The device code under C++ compilers, with their warnings as errors.
step_compilers() {
  shown "tests/device/compilers ${FEW_COMPILERS[*]}"
  headers_with "${FEW_COMPILERS[@]}"
}

# --- .ci/run long

# All kernels for each generation of GPUs that the program ships for.
step_archs() {
  compiled_for "$ARCHS" --features require-cuda
}

# The same for each generation, and Triton kernels that call each function: two minutes of a processor.
step_all_device_functions() {
  local folder=$PWD/target/ci/device triton=$PWD/target/ci/triton
  bindings/device/make "$folder" --archs "${ARCHS// /,}" --clang clang++-19 --cuda "$WHEEL_FOLDER/nvidia/cu13"
  if ! PYTHONPATH=$triton python3 -c "import triton" 2>/dev/null &&
    ! python3 -m pip install --quiet --target "$triton" "$TRITON" numpy; then
    echo "no $TRITON for this Python: no Triton kernel was compiled"
    return
  fi
  shown "PYTHONPATH=$triton TRITON_CACHE_DIR=$folder/triton tests/device_functions/triton_compile.py $folder/libwarpbell_device_sm_$ARCH.bc $ARCH"
}

step_all_compilers() {
  shown "tests/device/compilers ${COMPILERS[*]}"
  headers_with "${COMPILERS[@]}"
}
