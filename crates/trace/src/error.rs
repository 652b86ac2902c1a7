//! Errors of reading a capture.

use std::io;
use std::path::Path;

use crate::Compression;

/// The reason why a capture cannot be read, or not further. Packets that were returned before are
/// sound.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open {file}")]
    Open {
        /// Name of the file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system fails to read.
    #[error("cannot read {file}")]
    Read {
        /// Name of the file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file that is to be made exists, or cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// Name of the file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// Packets of a device cannot be captured.
    #[error("cannot capture on {device}")]
    Capture {
        /// Name of the device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{file} is no packet capture: {reason}")]
    NoCapture {
        /// Name of the file.
        file: String,
        /// The rest of the sentence.
        reason: &'static str,
    },
    /// A version of the format that is older or newer than what is known.
    #[error("{file} has version {major}.{minor} of {format}, which cannot be read")]
    UnsupportedVersion {
        /// Name of the file.
        file: String,
        /// Name of the format.
        format: &'static str,
        /// First part of the version.
        major: u16,
        /// Second part of the version.
        minor: u16,
    },
    /// A record that no program writes.
    #[error("{file} is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Place of the record from the file's beginning, in bytes after decompression.
        offset: u64,
        /// The rest of the sentence.
        reason: String,
    },
    /// The compressed data is damaged, or the decompressor cannot be started.
    #[error("{file} cannot be decompressed ({compression})")]
    Decompression {
        /// Name of the file.
        file: String,
        /// Compression of the file.
        compression: Compression,
        /// The decompressor's error.
        source: io::Error,
    },
    /// The file expands as no capture does.
    #[error("{file} is no honest capture: it expands more than 1000 times ({compression})")]
    Bomb {
        /// Name of the file.
        file: String,
        /// Compression of the file.
        compression: Compression,
    },
}

impl CaptureError {
    /// Returns the error of a device.
    pub(crate) fn of_device(device: &str, source: io::Error) -> Self {
        Self::Capture {
            device: device.to_owned(),
            source,
        }
    }

    /// Returns the error of a file that cannot be written.
    pub(crate) fn of_written_file(path: &Path, source: io::Error) -> Self {
        Self::Write {
            file: path.display().to_string(),
            source,
        }
    }
}

/// An error, before the file's name is added.
#[derive(Debug)]
pub(crate) enum CaptureFault {
    Read(io::Error),
    NoCapture(&'static str),
    Version {
        format: &'static str,
        major: u16,
        minor: u16,
    },
    Damaged {
        offset: u64,
        reason: String,
    },
    Decompression(Compression, io::Error),
    Bomb(Compression),
}

impl CaptureFault {
    /// Returns the error for the file of this name.
    pub(crate) fn into_error(self, file: &str) -> CaptureError {
        let file = file.to_owned();
        match self {
            Self::Read(source) => CaptureError::Read { file, source },
            Self::NoCapture(reason) => CaptureError::NoCapture { file, reason },
            Self::Version {
                format,
                major,
                minor,
            } => CaptureError::UnsupportedVersion {
                file,
                format,
                major,
                minor,
            },
            Self::Damaged { offset, reason } => CaptureError::Damaged {
                file,
                offset,
                reason,
            },
            Self::Decompression(compression, source) => CaptureError::Decompression {
                file,
                compression,
                source,
            },
            Self::Bomb(compression) => CaptureError::Bomb { file, compression },
        }
    }
}
