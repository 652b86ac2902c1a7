//! Packs the JSON schemas, which `tests/schema.rs` holds to the types: code that makes them from the
//! types would be ten times as large.
#![expect(clippy::disallowed_types, reason = "the files are those of the build")]

use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() -> std::io::Result<()> {
    let target = env::var_os("OUT_DIR").expect("cargo names the folder");
    for name in ["document", "event"] {
        let file = format!("schema/{name}.snap");
        println!("cargo::rerun-if-changed={file}");
        let snapshot = fs::read_to_string(file)?;
        let (_, schema) = snapshot
            .split_once("\n---\n")
            .expect("a snapshot has a head");
        let packed = fs::File::create(Path::new(&target).join(name))?;
        let mut encoder = ZlibEncoder::new(packed, Compression::best());
        encoder.write_all(schema.as_bytes())?;
        encoder.finish()?;
    }
    Ok(())
}
