//! Files that a scenario or a flag names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is read: more than the longest trace.
const MAX_OUTPUT: u64 = 16 << 20;

/// The text of the file `name`, which is relative to where `of` is.
///
/// # Errors
/// Why it is no text that can be read, without its name.
pub(crate) fn read_sibling(of: &Path, name: &str) -> Result<String, String> {
    let path = of.parent().unwrap_or(Path::new("")).join(name);
    // A pipe could keep the program waiting for ever.
    let metadata = path.metadata().map_err(|cause| cause.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(&path).map_err(|cause| cause.to_string())?;
    file.take(MAX_OUTPUT + 1)
        .read_to_string(&mut text)
        .map_err(|cause| cause.to_string())?;
    if text.len() as u64 > MAX_OUTPUT {
        Err("it is larger than 16 MiB".to_owned())
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_with_the_one_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lte.up"), "1\n").unwrap();
        let scenario = folder.path().join("a.toml");
        assert_eq!(read_sibling(&scenario, "lte.up").as_deref(), Ok("1\n"));
        assert!(read_sibling(&scenario, "none").is_err());
        assert_eq!(
            read_sibling(&scenario, "."),
            Err("it is not a file".to_owned())
        );
        assert_eq!(
            read_sibling(Path::new("a.toml"), "/dev/zero"),
            Err("it is not a file".to_owned())
        );
    }
}
