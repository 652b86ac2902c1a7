//! The program of a host: it asks the controller for slots, runs their tests by this program as a
//! child, and hands their documents over.

mod client;
mod echo;
mod host;
mod run;

pub use client::{ClientError, HttpsClient};
pub use host::{AgentFolder, AgentIdentity, JoinRequest, JoinedHost, RenewRequest};
pub use run::{AgentError, AgentOptions, LONGEST_WAIT, run_agent};
