//! Compiles the image `my_image`: for CPU threads, and by nvcc for GPUs if nvcc is installed.

fn main() {
    let kernels = warpbell_build::Kernels::new().file("kernels/sum.cu").file("kernels/ring.cu");
    kernels.cache_kernels(true).compile("my_image");
}
