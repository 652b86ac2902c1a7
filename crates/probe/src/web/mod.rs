//! Speed tests over the web, as seen from either end: the connection between its requests, and a
//! transfer as a measurement.

mod connection;
mod measurement;

pub(crate) use connection::{HeadFailure, WebConnection};
pub(crate) use measurement::{WebTransfer, end_at, last_progress};
