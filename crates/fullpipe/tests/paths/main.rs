//! The program over emulated paths whose figures are judged: one test at a time, and nothing else
//! meanwhile.

#![expect(
    clippy::print_stdout,
    reason = "figures of a run, shown by --nocapture"
)]

mod captures;
#[path = "../common/mod.rs"]
mod common;
mod copy;
mod diagnose;
mod lab;
mod lab_up;
mod latency;
mod listings;
mod live;
mod over_ssh;
mod pages;
mod program_windows;
mod receiving_host;
mod relay;
mod replay;
mod streams;
mod sweep;
mod trace;
mod web;
mod web_page;
