//! The program as its users run it: every test starts the binary. One crate, so that it is linked once and tests that wait
//! do so at the same time.

#![expect(clippy::print_stdout, reason = "figures of a run, for who asks with --nocapture")]

mod common;
mod diagnose;
mod drop_in;
mod errors;
mod events;
mod far_end;
mod help;
mod host;
mod hostile;
mod interop;
mod iperf2;
mod lab;
mod lab_up;
mod latency;
mod machine;
mod matrix;
mod placement;
mod ramp;
mod route;
mod serve;
mod storage;
mod tls;
mod users;
