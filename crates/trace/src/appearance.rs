//! Files that are no captures.

use crate::Compression;

/// The first bytes of files that are no captures, each with what to say of it.
const KNOWN: [(&[u8], &str); 8] = [
    (b"\x7FELF", "it is a program (ELF)"),
    (b"PK\x03\x04", "it is a zip archive; unpack it first"),
    (b"7z\xBC\xAF\x27\x1C", "it is a 7z archive; unpack it first"),
    (
        b"BZh",
        "it is compressed with bzip2, which is not supported; decompress it with bunzip2 first",
    ),
    (
        b"\x1F\x9D",
        "it is compressed with compress, which is not supported; decompress it first",
    ),
    (
        b"snoop\0",
        "it is a file of snoop; convert it with editcap first",
    ),
    (
        b"GMBU",
        "it is a file of Network Monitor; convert it with editcap first",
    ),
    (
        b"RTSS",
        "it is a file of Network Monitor; convert it with editcap first",
    ),
];

/// Returns the kind of a file, judged by its first bytes, as the end of the sentence "it is no
/// packet capture".
pub(crate) fn file_appearance(bytes: &[u8]) -> &'static str {
    let known = KNOWN
        .into_iter()
        .find(|(magic, _)| bytes.starts_with(magic));
    match known {
        Some((_, words)) => words,
        None if bytes.is_empty() => "it is empty",
        None if Compression::from_magic(bytes).is_some() => {
            "it is compressed twice; decompress it once first"
        }
        None if is_text(bytes) => "it is text",
        None if is_erf(bytes) => {
            "it looks like a file of an Endace card (ERF); convert it with editcap first"
        }
        None => "its first bytes are those of no known format",
    }
}

/// Returns true for bytes that text may begin with, whose last character may be cut.
fn is_text(bytes: &[u8]) -> bool {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || c.is_whitespace())
}

/// Returns true for bytes that may be the first record of an ERF file, which has no other mark: its
/// time lies between 1990 and 2050, its type is a known one, and its lengths are those of a packet.
fn is_erf(bytes: &[u8]) -> bool {
    const MAX_LENGTH: u16 = 16 << 10;
    let Some([_, _, _, _, time @ .., kind, _, r0, r1, _, _, w0, w1]) = bytes.first_chunk::<16>()
    else {
        return false;
    };
    let seconds = u32::from_le_bytes(*time);
    let [record, wire] = [[*r0, *r1], [*w0, *w1]].map(u16::from_be_bytes);
    let is_recent = (631_152_000..2_524_608_000).contains(&seconds);
    is_recent
        && (1..=48).contains(&(kind & 0x7F))
        && (16..=MAX_LENGTH).contains(&record)
        && wire <= MAX_LENGTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_named() {
        assert_eq!(file_appearance(b""), "it is empty");
        assert_eq!(
            file_appearance(b"12:00:00.000 IP 10.0.0.1 > 10.0.0.2\r\n"),
            "it is text"
        );
        assert_eq!(
            file_appearance("naïve é".as_bytes().split_last().unwrap().1),
            "it is text"
        );
        assert_eq!(file_appearance(b"\x7FELF\x02\x01"), "it is a program (ELF)");
        let erf = [
            0, 0, 0, 0x80, 0x00, 0x9E, 0x92, 0x65, 2, 4, 0, 80, 0, 0, 0, 60, 0, 0,
        ];
        assert!(file_appearance(&erf).contains("(ERF); convert it with editcap first"));
        assert_eq!(
            file_appearance(&[0; 40]),
            "its first bytes are those of no known format"
        );
        assert_eq!(
            file_appearance(&[0xFF, 0xFE, 0x80]),
            "its first bytes are those of no known format"
        );
    }
}
