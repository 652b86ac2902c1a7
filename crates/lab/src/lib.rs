//! A path between two hosts, on one machine: real TCP of the running kernel at both ends, our own
//! link between them.
//!
//! Hosts are processes, never threads. [`Lab::start`] runs this program again as the *keeper*
//! ([`keeper::main`]): PID 1 of its own namespaces, which makes a network namespace and a device
//! for each host, hands the devices' descriptors to the parent and starts programs in a host on
//! request. It exits when the parent is gone, however that went, and the kernel then ends
//! everything below it. The link runs in the parent, on one thread per direction, and needs no
//! privilege. Where it is asked for, the kernel's own disciplines are in its place
//! ([`Backend::Kernel`]).

mod awake;
mod backend;
mod capture;
mod carried;
mod command_channel;
mod congestion;
mod count_readers;
mod driver;
mod error;
mod join_socket;
pub mod keeper;
mod kernel;
mod lab;
mod lack;
mod packet;
mod path_witness;
mod pcap;
mod program;
mod protocol;
mod refusal;
mod remote;
mod router;
mod spin_sleeper;
mod status;
mod truth;
mod validity;
mod witnesses;

pub use awake::AwakeProcessors;
pub use backend::Backend;
pub use capture::{CaptureSummary, PathCapture};
pub use congestion::check_congestion_control;
pub use error::LabError;
pub use join_socket::{JoinSocket, JoinedLab, StandingLab};
pub use lab::{Lab, LabPlan, ValidityWatch};
pub use path_witness::PathWitness;
pub use program::{LabProgram, LastOutput, OutputLine, ProgramOutput, ProgramStdio};
pub use protocol::Host;
pub use status::PathMeter;
