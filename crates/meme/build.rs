//! Links libtorch, and keeps the program usable with glibc 2.28, the oldest that libtorch itself runs with.
//!
//! Without the latter, a program needs the glibc that it was built with: the linker binds each function to its newest
//! version. Here it binds the functions that have changed since 2.28 to the version before and leaves out those that did
//! not exist. `scripts/wheel.sh` warns if one is missing.

#[path = "../link_libtorch.rs"]
mod link_libtorch;

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

/// Functions with a newer version, and the version to use.
const VERSIONS: [(&str, &str); 21] = [
    ("dlclose", "GLIBC_2.2.5"),
    ("dlerror", "GLIBC_2.2.5"),
    ("dlopen", "GLIBC_2.2.5"),
    ("dlsym", "GLIBC_2.2.5"),
    ("exp", "GLIBC_2.2.5"),
    ("hypotf", "GLIBC_2.2.5"),
    ("log", "GLIBC_2.2.5"),
    ("log2", "GLIBC_2.2.5"),
    ("pow", "GLIBC_2.2.5"),
    ("pthread_attr_getguardsize", "GLIBC_2.2.5"),
    ("pthread_attr_getstack", "GLIBC_2.2.5"),
    ("pthread_attr_setstacksize", "GLIBC_2.2.5"),
    ("pthread_create", "GLIBC_2.2.5"),
    ("pthread_detach", "GLIBC_2.2.5"),
    ("pthread_getattr_np", "GLIBC_2.2.5"),
    ("pthread_join", "GLIBC_2.2.5"),
    ("pthread_key_create", "GLIBC_2.2.5"),
    ("pthread_key_delete", "GLIBC_2.2.5"),
    ("pthread_setname_np", "GLIBC_2.12"),
    ("pthread_setspecific", "GLIBC_2.2.5"),
    ("pthread_sigmask", "GLIBC_2.2.5"),
];
/// Functions that `old_glibc.c` defines.
const DEFINED: [&str; 5] = ["__libc_start_main", "fstat64", "fstatat64", "lstat64", "stat64"];
/// Functions that Rust's standard library does without if they are missing.
const OPTIONAL: [&str; 5] = [
    "gettid",
    "pidfd_getpid",
    "pidfd_spawnp",
    "posix_spawn_file_actions_addchdir",
    "posix_spawn_file_actions_addchdir_np",
];

fn main() {
    link_libtorch::main();
    let sources = ["src/old_glibc.c", "../torch-ext/src/old_libstdcxx.c"];
    for file in ["build.rs", "../link_libtorch.rs"].iter().chain(&sources) {
        println!("cargo:rerun-if-changed={file}");
    }
    let mut assembly = String::from(".section .note.GNU-stack,\"\",@progbits\n.text\n");
    for (name, version) in VERSIONS {
        writeln!(assembly, ".symver old_{name}, {name}@{version}\n.globl __wrap_{name}").expect("memory");
        writeln!(assembly, "__wrap_{name}: jmp *old_{name}@GOTPCREL(%rip)").expect("memory");
    }
    let versions = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("versions.s");
    fs::write(&versions, assembly).expect("the build directory is writable");
    for object in cc::Build::new().files(sources).file(versions).compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    for name in VERSIONS.map(|(name, _)| name).iter().chain(&DEFINED).chain(&OPTIONAL) {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={name}");
    }
}
