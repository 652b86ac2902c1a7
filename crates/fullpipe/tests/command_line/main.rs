//! The program as its users run it, over loopback or no network at all: every test starts the
//! binary. All tests are one crate, which is linked once, and those that wait do so at the same
//! time.

#![expect(
    clippy::print_stdout,
    reason = "figures of a run, shown by --nocapture"
)]

mod archive;
mod bare_root;
mod calc;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod contrib;
mod copy_web;
mod diff;
mod documentation;
mod drop_in;
mod errors;
mod events;
mod far_end;
mod fleet;
mod fleet_page;
mod handed_over;
mod help;
mod host;
mod hostile;
mod hostile_http2;
mod hostile_loads;
mod hostile_relays;
mod hostile_web;
mod interop;
mod iperf2;
mod live;
mod machine;
mod matrix;
mod mcp;
mod over_ssh;
mod pages;
mod placement;
mod prometheus;
mod pscheduler;
mod ramp;
mod records;
mod relay;
mod relay_faults;
mod relay_services;
mod report;
mod route;
mod serve;
mod shards;
mod simulate;
mod slurm;
mod storage;
mod sweep;
mod tickets;
mod tls;
mod trace;
mod until_sure;
mod users;
mod web;
mod web_crowd;
mod web_page;

use fullpipe_testkit::{Running, free_port, wait_for_listener};

use common::fullpipe;

/// Starts a server of tests on loopback, and returns it with its port.
fn far_end() -> (Running, String) {
    let port = free_port();
    let number = port.to_string();
    let server = ["serve", "-p", &number, "-B", "127.0.0.1", "--no-iperf2"];
    let running = Running::start(&mut fullpipe(&server));
    wait_for_listener(port);
    (running, number)
}
