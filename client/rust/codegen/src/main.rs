//! Writes posenc.v1.rs from the proto files with protoc: codegen PROTO_DIRECTORY OUT_DIRECTORY
use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [protos, out]: [PathBuf; 2] = env::args_os()
        .skip(1)
        .map(PathBuf::from)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "usage: codegen PROTO_DIRECTORY OUT_DIRECTORY")?;
    let mut files = fs::read_dir(protos.join("posenc/v1"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    // Bytes are received without a copy.
    tonic_prost_build::configure().build_server(false).bytes(".").out_dir(out).compile_protos(&files, &[protos])?;
    Ok(())
}
