//! Files that the command line names, read whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest file that is read: more than any archive prints, and no capture of hours.
const MAX: u64 = 512 << 20;

/// Reads the content of a file; `-` is standard input.
///
/// # Errors
/// Fails if the file cannot be read, or is larger than 512 MiB.
pub(crate) fn read_input(file: &Path) -> io::Result<Vec<u8>> {
    if file == Path::new("-") {
        up_to(MAX, io::stdin().lock())
    } else {
        up_to(MAX, File::open(file)?)
    }
}

/// Returns the text in a file; `-` is standard input.
///
/// # Errors
/// Fails as [`read_input`], and if it is no text.
pub(crate) fn read_text(file: &Path) -> io::Result<String> {
    String::from_utf8(read_input(file)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

fn up_to(most: u64, from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", most >> 20),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_read_up_to_a_limit() {
        assert_eq!(
            up_to(3 << 20, io::repeat(0)).unwrap_err().to_string(),
            "it is larger than 3 MiB"
        );
        assert_eq!(up_to(3, &b"abc"[..]).unwrap(), b"abc");
        assert!(up_to(2, &b"abc"[..]).is_err());
    }
}
