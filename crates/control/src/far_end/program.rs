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

/// Opening of the names of programs for other hosts; the machine as `uname -m` has it follows.
const NAME: &str = "fullpipe-";

/// A program that can be brought to hosts of its machine.
pub(super) struct ProgramFile {
    /// The machine as `uname -m` has it.
    pub machine: String,
    pub file: PathBuf,
    /// SHA-256 in hexadecimal.
    pub digest: String,
}

impl ProgramFile {
    /// Returns the program for each machine that there is one for: `fullpipe-MACHINE` in `folder`,
    /// or else beside the installed program; and this program itself for machines of its kind that
    /// have none.
    ///
    /// # Errors
    /// Fails if a program cannot be read.
    pub(super) fn find_all(folder: Option<&Path>) -> Result<Vec<Self>, FarEndError> {
        let own = std::env::current_exe().ok();
        let packaged = own
            .as_ref()
            .and_then(|own| Some(own.parent()?.join(PACKAGED)));
        let folders = folder.map(Path::to_owned).into_iter().chain(packaged);
        let files = folders.flat_map(|folder| named_files(&folder));
        let own = own.map(|own| (std::env::consts::ARCH.to_owned(), own));
        let mut programs: Vec<Self> = Vec::new();
        for (machine, file) in files.chain(own) {
            if programs.iter().all(|other| other.machine != machine) {
                let digest = digest(&SHA256, &read_program(&file)?);
                programs.push(Self {
                    machine,
                    digest: to_hexadecimal(digest.as_ref()),
                    file,
                });
            }
        }
        Ok(programs)
    }

    /// Returns the program as gzip (RFC 1952).
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub(super) fn compress(&self) -> Result<Vec<u8>, FarEndError> {
        let (content, mut compressed) = (read_program(&self.file)?, Vec::new());
        // Memory can be read; the digest would show what is missing.
        let _ = GzEncoder::new(&*content, Compression::fast()).read_to_end(&mut compressed);
        Ok(compressed)
    }
}

/// Returns the files of a folder that are named for machines, with the machines.
fn named_files(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name();
        let machine = name.to_str()?.strip_prefix(NAME)?;
        let is_plain = machine
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_plain && entry.path().is_file()).then(|| (machine.to_owned(), entry.path()))
    });
    named.collect()
}

fn read_program(file: &Path) -> Result<Vec<u8>, FarEndError> {
    fs::read(file)
        .map_err(|cause| FarEndError::Failed(format!("cannot read {}: {cause}", file.display())))
}
