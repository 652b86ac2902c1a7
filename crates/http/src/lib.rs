//! HTTP/1.1 (RFC 9110, RFC 9112) and WebSocket (RFC 6455) as bytes ↔ values, and the speed tests that
//! browsers run over them and over HTTP/2.
//!
//! * In: bytes of a connection. Out: the head of a request ([`RequestHead`]), the fields of any head
//!   ([`HeadFields`]), the content of a body ([`BodyDecoder`]), the frames of a WebSocket
//!   ([`FrameReader`]).
//! * In: the answer of a server ([`Answer`]). Out: its bytes in HTTP/1.1.
//! * In: the head of a request. Out: what a server of speed tests is asked for ([`SpeedTest`]): ndt7,
//!   responsiveness, Cloudflare's and LibreSpeed's paths.
//! * In: bytes of the other end of a test of ndt7, and samples of its connection. Out: what they mean,
//!   and what is to be sent ([`Ndt7Endpoint`]).

mod answer;
mod body;
mod endpoint;
mod fields;
mod ndt7;
mod request;
mod responsiveness;
mod speed_test;
mod websocket;

pub use answer::Answer;
pub use body::{BodyDecoder, BodyFraming, BodyPart};
pub use endpoint::Ndt7Endpoint;
pub use fields::{HeadFields, MAX_FIELDS, MAX_HEAD, parse_number};
pub use ndt7::{
    MESSAGE_INTERVAL, MessageSizes, Ndt7AppInfo, Ndt7Connection, Ndt7Message, Ndt7TcpInfo,
    SUBPROTOCOL, TEST_DURATION,
};
pub use request::{RequestHead, RequestRefusal, WebSocketOffer, read_upgrade};
pub use responsiveness::{
    MAX_CONNECTIONS, MAX_PROBES, PROBE_SHARE, ProbeTimes, RPM_INTERVAL, ResponsivenessTargets,
    RpmCourse,
};
pub use speed_test::{SpeedTest, responsiveness_config};
pub use websocket::{
    FrameEvent, FrameReader, MAX_MESSAGE, Opcode, WebSocketRole, accept_key, push_frame,
    push_frame_header,
};

/// The error of bytes that break their protocol, or that this end does not take.
pub type RuleBroken = &'static str;
