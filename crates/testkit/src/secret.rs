use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a file that only its owner may read, as the program wants it of keys, or changes one that
/// is there.
///
/// # Panics
/// If it cannot be written.
pub fn write_secret(path: impl AsRef<Path>, content: &str) {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(content.as_bytes()))
        .expect("the file of a key can be written");
}
