//! With the `cuda` feature, compiles `src/shim.cpp` against libtorch and the CUDA runtime of the same Python environment.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/shim.cpp");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let libtorch = PathBuf::from(
        env::var("LIBTORCH").expect("LIBTORCH must be set; run `make build`, which uses .cargo/config.toml"),
    );
    // The tests of this crate find libtorch like the binary does.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}/lib", libtorch.display());
    println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let libtorch = libtorch.canonicalize().expect("LIBTORCH must name a directory");
    let cuda = libtorch.join("../nvidia/cu13/include");
    assert!(
        cuda.join("crt/host_defines.h").exists(),
        "the CUDA headers are missing; run `make build` or `make bundle`"
    );
    cc::Build::new()
        .cpp(true)
        .pic(true)
        .warnings(false)
        .std("c++17")
        .include(libtorch.join("include"))
        .include(libtorch.join("include/torch/csrc/api/include"))
        .include(cuda)
        .file("src/shim.cpp")
        .compile("torch_ext_shim");
    println!("cargo:rustc-link-search=native={}/lib", libtorch.display());
    println!("cargo:rustc-link-arg=-Wl,--no-as-needed,-ltorch_cuda,-lc10_cuda,--as-needed");
    for library in ["torch_cuda", "c10_cuda", "torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
