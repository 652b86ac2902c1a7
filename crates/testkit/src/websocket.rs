//! What a client of HTTP/1.1 and of a WebSocket sends (RFC 9112, RFC 6455), byte for byte, for
//! servers that are to stand anything.

/// Frame of bytes (section 5.2), the last of its message.
pub const BINARY: u8 = 0x82;
/// Frame of bytes that others follow.
pub const FIRST_BINARY: u8 = 0x02;
/// Frame between the first one of a message and its last.
pub const CONTINUATION: u8 = 0x00;
/// Frame of text.
pub const TEXT: u8 = 0x81;
/// Frame that ends what its sender sends.
pub const CLOSE: u8 = 0x88;
/// Frame that is to be answered.
pub const PING: u8 = 0x89;

/// Returns a frame of a client, whose mask changes nothing. `kind` is its first byte.
///
/// # Panics
/// If the payload is longer than 65535 bytes.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        short @ 0..126 => vec![0x80 | short as u8],
        long => [&[0xfe][..], &u16::try_from(long).unwrap().to_be_bytes()].concat(),
    };
    [&[kind], &length[..], &[0; 4], payload].concat()
}

/// Returns the head of a request of HTTP/1.1, such as `GET /`, with more `fields`, each with its
/// end of the line.
pub fn request_head(request: &str, fields: &str) -> Vec<u8> {
    format!("{request} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
}

/// Returns the head that asks for the WebSocket of ndt7: `download` or `upload`.
pub fn ndt7_head(direction: &str) -> Vec<u8> {
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: net.measurementlab.ndt.v7\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    request_head(&format!("GET /ndt/v7/{direction}"), fields)
}
