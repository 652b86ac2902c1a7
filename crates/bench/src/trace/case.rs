//! The captures that are read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsRawFd, RawFd};

use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{MemfdFlags, memfd_create};

use super::generate::{Plan, Transfers};

/// Bytes of a packet that `tcpdump -s 96` keeps, and all of a full one.
const SHORT: usize = 96;
const FULL: usize = 1514;

/// A capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Whole packets of one connection
    Full,
    /// The first 96 bytes of the packets of one connection
    Snap,
    /// The same with 12.5 MB in flight
    Flight,
    /// The same of 100 000 connections
    Flows,
    /// Whole packets, compressed with gzip
    Gzip,
}

impl Case {
    /// Returns its title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Full => "whole packets, one connection",
            Self::Snap => "snap length 96, one connection",
            Self::Flight => "snap length 96, 12.5 MB in flight",
            Self::Flows => "snap length 96, 100 000 connections",
            Self::Gzip => "whole packets, gzip",
        }
    }

    fn plan(self) -> Plan {
        const PACKETS: u64 = 3_000_000;
        const FLIGHT: u64 = 500_000;
        let one = |packets, flight| Transfers::One { packets, flight };
        match self {
            Self::Full => Plan {
                transfers: one(600_000, FLIGHT),
                snap: FULL,
            },
            Self::Snap => Plan {
                transfers: one(PACKETS, FLIGHT),
                snap: SHORT,
            },
            Self::Flight => Plan {
                transfers: one(PACKETS, 12_500_000),
                snap: SHORT,
            },
            Self::Flows => Plan {
                transfers: Transfers::Many(100_000),
                snap: SHORT,
            },
            Self::Gzip => Plan {
                transfers: one(300_000, FLIGHT),
                snap: FULL,
            },
        }
    }

    /// Makes the capture; with `is_short`, one of a tenth of the packets.
    pub(crate) fn make(self, is_short: bool) -> io::Result<Capture> {
        let plan = if is_short {
            self.plan().tenth()
        } else {
            self.plan()
        };
        Capture::make(plan, self == Self::Gzip)
    }
}

/// A file in memory, which ends with this process.
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    pub(crate) packets: u64,
    /// Its size in bytes, before compression.
    pub(crate) bytes: u64,
}

impl Capture {
    fn make(plan: Plan, is_compressed: bool) -> io::Result<Self> {
        let file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC)?);
        let output = BufWriter::with_capacity(1 << 20, &file);
        let (packets, bytes) = if is_compressed {
            let mut output = Counted {
                output: GzEncoder::new(output, Compression::fast()),
                bytes: 0,
            };
            let packets = plan.write(&mut output)?;
            output.output.finish()?.flush()?;
            (packets, output.bytes)
        } else {
            let mut output = Counted { output, bytes: 0 };
            let packets = plan.write(&mut output)?;
            output.output.flush()?;
            (packets, output.bytes)
        };
        Ok(Self {
            file,
            packets,
            bytes,
        })
    }

    /// Returns a path by which other programs can open it while this one runs.
    pub(crate) fn path(&self) -> String {
        let descriptor: RawFd = self.file.as_raw_fd();
        format!("/proc/{}/fd/{descriptor}", std::process::id())
    }
}

struct Counted<W> {
    output: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
