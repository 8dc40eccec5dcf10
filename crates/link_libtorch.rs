//! Build script of every crate whose binaries or tests link libtorch.
//!
//! It makes them find libtorch at run time without `LD_LIBRARY_PATH`.

use std::env;

/// Also called by build scripts that do more.
pub fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let libtorch = env::var("LIBTORCH").expect("LIBTORCH is set by .cargo/config.toml; run `make build`");
    // target/release/meme, then target/release/deps/test: a checkout still works after it is moved.
    for origin in ["$ORIGIN/../..", "$ORIGIN/../../.."] {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{origin}/.venv/libtorch/lib");
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
    // The tests that need a GPU call libtorch directly instead of `torch-ext`, which would load the CUDA part
    // first.
    if env::var_os("CARGO_FEATURE_GPU_TESTS").is_some() {
        println!("cargo:rustc-link-search=native={libtorch}/lib");
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed,-ltorch_cuda,-lc10_cuda,--as-needed");
    }
}
