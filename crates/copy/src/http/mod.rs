//! What a web server says of a file, and what it is asked for: decided without a socket.
//!
//! HTTP/1.1 as of RFC 9110 and RFC 9112, as far as a download by ranges needs it. The syntax of a
//! head is read by `httparse`, that of a URL by `fluent-uri`.

mod body;
mod digest;
mod growth;
mod head;
mod plan;
mod url;
mod validator;

pub use body::{BodyDecoder, BodyFraming, BodyPart};
pub use digest::{DigestAlgorithm, FileDigest};
pub(crate) use growth::ConnectionGrowth;
pub use head::{ContentRange, HeadError, MAX_HEAD, ResponseHead};
pub(crate) use plan::{RangePlan, RangeWork};
pub use url::{UrlError, WebUrl};
pub use validator::Validator;

/// The error of an answer that breaks RFC 9110 or RFC 9112, or that this end does not take.
pub type RuleBroken = &'static str;
