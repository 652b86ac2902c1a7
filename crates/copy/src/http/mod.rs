//! What a web server says of a file, and what it is asked for: decided without a socket.
//!
//! HTTP/1.1 as of RFC 9110 and RFC 9112, and FTP, as far as a download by ranges needs them. The
//! syntax of a head is read by `httparse`, that of a URL by `fluent-uri`.

mod digest;
mod ftp;
mod growth;
mod head;
mod plan;
mod url;
mod validator;

pub use digest::{DigestAlgorithm, FileDigest};
pub(crate) use ftp::FtpFile;
pub use ftp::FtpReply;
pub use fullpipe_http::{BodyDecoder, BodyFraming, BodyPart, MAX_HEAD, RuleBroken};
pub(crate) use growth::ConnectionGrowth;
pub use head::{ContentRange, HeadError, ResponseHead};
pub(crate) use plan::{RangePlan, RangeWork};
pub use url::{UrlError, WebUrl};
pub use validator::Validator;
