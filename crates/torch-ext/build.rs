//! Compiles `src/shim.cpp` to a shared library, against libtorch and the CUDA headers of the same Python environment.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/shim.cpp");
    println!("cargo:rerun-if-changed=src/old_libstdcxx.c");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let libtorch = PathBuf::from(
        env::var("LIBTORCH").expect("LIBTORCH must be set; run `make build`, which uses .cargo/config.toml"),
    );
    // The tests of this crate find libtorch like the binary does.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}/lib", libtorch.display());
    println!("cargo:rustc-link-arg=-Wl,--allow-shlib-undefined");
    let libtorch = libtorch.canonicalize().expect("LIBTORCH must name a directory");
    let cuda = libtorch.join("../nvidia/cu13/include");
    assert!(cuda.join("crt/host_defines.h").exists(), "the CUDA headers are missing; run `make build`");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let old_libstdcxx = cc::Build::new().file("src/old_libstdcxx.c").compile_intermediates();
    // The libraries it needs are in the process when it is loaded, so it names none of them.
    let linked = cc::Build::new()
        .cpp(true)
        .pic(true)
        .warnings(false)
        .std("c++17")
        .include(libtorch.join("include"))
        .include(libtorch.join("include/torch/csrc/api/include"))
        .include(cuda)
        .get_compiler()
        .to_command()
        .args(["-shared", "-s", "src/shim.cpp"])
        .args(old_libstdcxx)
        .arg("-o")
        .arg(out.join("shim.so"))
        .status();
    assert!(linked.is_ok_and(|status| status.success()), "src/shim.cpp does not compile; see the messages above");
}
