//! Pictures on the terminal of what runs: a measurement, a sweep, a server or a program that is
//! watched.
//!
//! A [`LivePage`] is a state that updates change, and that is drawn as lines of a given size: it
//! knows neither terminal nor clock. [`LiveDisplay`] draws a page from a thread of its own, at most
//! ten times a second, and takes the keys: `q` sets a flag that ends what runs. The picture goes to
//! the terminal itself, whatever standard output is, and the terminal is as it was when
//! [`LiveDisplay`] is dropped, and before the message of a panic.

mod course;
mod display;
mod frame;
mod measurement;
mod screen;
mod server;
mod sweep;
mod track;
mod watched;

pub(crate) use display::LiveDisplay;
pub(crate) use frame::LivePage;
pub(crate) use measurement::{MeasurementPage, MeasurementUpdate};
pub(crate) use screen::find_terminal;
pub(crate) use server::{ServerPage, ServerUpdate};
pub(crate) use sweep::{SweepPage, SweepUpdate};
pub(crate) use watched::{WatchedPage, WatchedUpdate};
