use std::io::Read;

use flate2::read::ZlibDecoder;

/// The JSON schemas, packed by `build.rs`.
const DOCUMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/document"));
const EVENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/event"));

/// Returns the JSON schema of a [`Document`](crate::Document), with a newline at its end.
///
/// # Panics
/// Never: the schema is part of the program.
pub fn document_schema() -> String {
    unpack(DOCUMENT)
}

/// Returns the JSON schema of an [`EventLine`](crate::EventLine), with a newline at its end.
///
/// # Panics
/// Never: the schema is part of the program.
pub fn event_schema() -> String {
    unpack(EVENT)
}

fn unpack(schema: &[u8]) -> String {
    let mut text = String::new();
    let unpacked = ZlibDecoder::new(schema).read_to_string(&mut text);
    unpacked.expect("the build packed a text");
    text
}
