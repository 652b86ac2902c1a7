//! Reads the document of `fullpipe measure --json` on standard input and prints its rate and its
//! limit.
//!
//!     fullpipe measure HOST --json | cargo run -p fullpipe-record --example read_document

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::io;

use fullpipe_record::{Content, Document};

fn main() -> Result<(), Box<dyn Error>> {
    let document: Document = serde_json::from_reader(io::stdin().lock())?;
    let Content::Measurement { measurement, .. } = document.content else {
        return Err("this is no document of `fullpipe measure`".into());
    };
    println!("rate: {}", measurement.summary.rate);
    if let Some(verdict) = measurement.limit {
        println!("limited by: {} ({:?})", verdict.kind.name(), verdict.cause);
    }
    Ok(())
}
