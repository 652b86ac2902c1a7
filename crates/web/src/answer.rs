//! Answers, and the fields that all of them have.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub(crate) type Answer = Response<AnswerBody>;

/// What pages may do: nothing is requested from elsewhere, no page of others shows ours, and no
/// script runs that is not a file of this server (CSP level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// Kind of an answer in JSON.
pub(crate) const JSON: &str = "application/json";

/// Kind of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// Why a request has no result: a status, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }

    pub(crate) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub(crate) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }
}

/// Returns an answer with a whole body.
pub(crate) fn whole_answer(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Answer {
    answer_with_body(status, kind, Full::new(body.into()).boxed_unsync())
}

/// Returns an answer of this kind with the fields that all answers have.
pub(crate) fn answer_with_body(status: StatusCode, kind: &str, body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let fields = answer.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        fields.insert(header::CONTENT_TYPE, kind);
    }
    let own = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in own {
        fields.insert(name, HeaderValue::from_static(value));
    }
    answer
}
