//! The file that is brought to a host without fullpipe.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use flate2::Compression;
use flate2::read::GzEncoder;
use fullpipe_units::to_hexadecimal;

use super::FarEndError;

/// Folder beside that of the program in which a package keeps the programs for other hosts.
const PACKAGED: &str = "../lib/fullpipe";

/// Returns the file for a machine that `uname -m` calls so: `fullpipe-MACHINE` in `folder` or
/// beside the installed program, or else this program itself, if the machine is of its kind.
pub(super) fn program_file(machine: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let packaged = own
        .as_ref()
        .and_then(|own| Some(own.parent()?.join(PACKAGED)));
    let name = format!("fullpipe-{machine}");
    let is_plain = machine
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let folders = [folder.map(Path::to_owned), packaged].into_iter().flatten();
    let for_machine = folders
        .map(|folder| folder.join(&name))
        .find(|file| is_plain && file.is_file());
    for_machine.or_else(|| own.filter(|_| machine == std::env::consts::ARCH))
}

/// A program, compressed.
pub(super) struct ProgramFile {
    content: Vec<u8>,
    /// SHA-256 in hexadecimal.
    pub(super) digest: String,
}

impl ProgramFile {
    /// Reads a program.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn read(file: &Path) -> Result<Self, FarEndError> {
        let content = fs::read(file).map_err(|cause| FarEndError::Program {
            file: file.to_owned(),
            cause,
        })?;
        let digest = to_hexadecimal(digest(&SHA256, &content).as_ref());
        Ok(Self { content, digest })
    }

    /// Returns the program as gzip (RFC 1952).
    pub(super) fn compress(&self) -> Vec<u8> {
        let mut compressed = Vec::new();
        // Memory can be read; the digest would show what is missing.
        let _ = GzEncoder::new(&*self.content, Compression::fast()).read_to_end(&mut compressed);
        compressed
    }
}
