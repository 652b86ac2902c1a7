//! What a client of HTTP/2 sends (RFC 9113), byte for byte, for servers that are to stand anything.

/// What comes before all frames (section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame of data (section 6.1).
pub const DATA: u8 = 0;
/// Frame of fields (section 6.2).
pub const HEADERS: u8 = 1;
/// Frame that ends a stream at once (section 6.4).
pub const RESET: u8 = 3;
/// Frame of settings (section 6.5).
pub const SETTINGS: u8 = 4;
/// Frame that is to be answered (section 6.7).
pub const PING: u8 = 6;
/// Frame that grants a window (section 6.9).
pub const WINDOW_UPDATE: u8 = 8;
/// Frame of further fields (section 6.10).
pub const CONTINUATION: u8 = 9;

/// Flag of the last frame of a stream.
pub const END: u8 = 1;
/// Flag of a frame that has all fields.
pub const WHOLE: u8 = 4;

/// Returns a frame (section 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the fields of a request for `path`, without compression (RFC 7541, section 6.2.2):
/// `method` is 2 for GET and 3 for POST, as in its static table.
pub fn request_fields(method: u8, path: &str) -> Vec<u8> {
    // https is 7 there, `:path` 4 and `:authority` 1.
    let mut fields = vec![0x80 | method, 0x87];
    for (name, value) in [(4, path), (1, "h")] {
        fields.extend([name, value.len() as u8]);
        fields.extend(value.as_bytes());
    }
    fields
}

/// Returns the frame of a request for `path` with all its fields.
pub fn request(stream: u32, method: u8, path: &str, flags: u8) -> Vec<u8> {
    frame(
        HEADERS,
        flags | WHOLE,
        stream,
        &request_fields(method, path),
    )
}

/// Returns the frame of a GET for `path`.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, 2, path, END)
}
