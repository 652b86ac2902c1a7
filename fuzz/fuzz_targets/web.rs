//! Everything that a copy reads of a web server or an FTP server: heads, replies, bodies in chunks,
//! the URLs of redirections and digests. What is taken of a body is never more than came, and a file
//! name leads nowhere else.
#![no_main]

use fullpipe_copy::http::{
    BodyDecoder, BodyFraming, BodyPart, FileDigest, FtpReply, ResponseHead, Validator, WebUrl,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((head, length))) = ResponseHead::parse(bytes) {
        assert!(length <= bytes.len());
        if let Some(range) = head.content_range.and_then(|found| found.range) {
            assert!(range.0 <= range.1);
        }
        if let Some(validator) = Validator::from_head(&head) {
            assert!(validator.is_same_state(&head));
            assert!(!validator.field_value().contains(['\r', '\n']));
        }
        decode_body(head.framing, &bytes[length..]);
    }
    decode_body(BodyFraming::Chunked, bytes);
    if let Ok(Some((reply, length))) = FtpReply::parse(bytes) {
        assert!(length <= bytes.len() && (100..600).contains(&reply.code));
        assert_ne!(reply.data_port(), Some(0));
        let _ = (reply.file_size(), reply.modified_seconds());
    }
    if let Ok(text) = str::from_utf8(bytes) {
        follow_redirection(text);
        if let Ok(digest) = text.parse::<FileDigest>() {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
    }
});

fn decode_body(framing: BodyFraming, mut bytes: &[u8]) {
    let mut decoder = BodyDecoder::new(framing);
    while !bytes.is_empty() && !decoder.has_ended() {
        match decoder.take_part(bytes, 1000) {
            Ok(BodyPart::Content(count) | BodyPart::Framing(count)) => {
                assert!(count > 0);
                bytes = &bytes[count..];
            }
            Ok(BodyPart::End) | Err(_) => return,
        }
    }
}

fn follow_redirection(location: &str) {
    let base = WebUrl::parse("https://example.org/a/b?c").expect("it is a URL");
    if let Ok(url) = base.redirect_to(location) {
        assert!(url.is_https() && url.port() > 0 && !url.host().is_empty());
        assert!(!url.request_target().contains(char::is_whitespace));
        assert_eq!(WebUrl::parse(url.as_str()).as_ref(), Ok(&url));
        if let Ok(name) = url.file_name() {
            assert!(!name.as_bytes().contains(&b'/') && name.as_bytes() != b"..");
        }
    }
}
