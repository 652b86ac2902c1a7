//! Files that benchmarks need.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fullpipe_units::ByteCount;

use crate::process::RunError;

/// Returns a folder in memory, so that no disk limits what is copied.
pub(super) fn folder_in_memory() -> Result<tempfile::TempDir, RunError> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).map_err(RunError::failed)
}

/// Makes a file with a key that nobody else may read.
pub(super) fn write_key(at: &Path) -> Result<(), RunError> {
    let key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(at);
    key.and_then(|mut key| key.write_all(b"correct horse battery")).map_err(RunError::failed)
}

/// Makes a file that does not compress.
pub(super) fn write_random(at: &Path, size: ByteCount) -> Result<(), RunError> {
    let mut random = File::open("/dev/urandom").map_err(RunError::failed)?.take(size.get());
    File::create(at).and_then(|mut file| io::copy(&mut random, &mut file)).map(drop).map_err(RunError::failed)
}
