//! Compiles the .proto files with a compiler in pure Rust: no protoc has to be installed.

use std::error::Error;

const FILES: [&str; 2] = ["proto/holdfast/block/v1/block.proto", "proto/holdfast/volumes/v1/volumes.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().bytes(".holdfast.block.v1").compile_fds(descriptors)?;
    Ok(())
}
