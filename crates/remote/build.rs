//! Generates the messages and the service of `proto/actors.proto`, without `protoc`, and links libtorch.

#[path = "../link_libtorch.rs"]
mod link_libtorch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    link_libtorch::main();
    println!("cargo::rerun-if-changed=proto/actors.proto");
    let service = protox::compile(["actors.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(service)?;
    Ok(())
}
