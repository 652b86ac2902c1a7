use std::io::{self, ErrorKind};
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};

/// The rights that are taken away, where the kernel knows them; opening files is one of the first.
const RIGHTS: ABI = ABI::V5;

/// Confines this thread, and the processes that it starts from now on, to these files and to what is
/// below these folders: it can read and run what is `readable`, and change what is `writable`, too.
/// Links that lead elsewhere lead nowhere then. Paths that do not exist are passed over.
///
/// # Errors
/// Fails if the kernel refuses, or has no Landlock (Linux 5.13, where it is not disabled).
pub fn confine_thread(readable: &[PathBuf], writable: &[PathBuf]) -> io::Result<()> {
    let status = restrict_to(readable, writable).map_err(io::Error::other)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        let why = "this kernel has no Landlock, which came with Linux 5.13 and can be disabled";
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    }
    Ok(())
}

fn restrict_to(
    readable: &[PathBuf],
    writable: &[PathBuf],
) -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(RIGHTS)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(RIGHTS)))?
        .restrict_self()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testkit::require;
    use std::fs;
    use std::thread;

    #[test]
    fn a_confined_thread_reads_and_writes_only_what_it_may() {
        require!(Landlock);
        let base = std::env::temp_dir().join(format!("fullpipe-confined-{}", std::process::id()));
        let [read, write, other] = ["read", "write", "other"].map(|name| base.join(name));
        for folder in [&read, &write, &other] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "text").unwrap();
        }
        std::os::unix::fs::symlink(other.join("file"), read.join("link")).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let folders = [read.clone(), base.join("none")];
                confine_thread(&folders, std::slice::from_ref(&write)).unwrap();
                assert_eq!(fs::read_to_string(read.join("file")).unwrap(), "text");
                fs::write(write.join("new"), "text").unwrap();
                for refused in [
                    fs::write(read.join("new"), "text"),
                    fs::read(other.join("file")).map(drop),
                    fs::read(read.join("link")).map(drop),
                    fs::read(read.join("../other/file")).map(drop),
                ] {
                    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
                }
            });
        });
        assert!(fs::read(other.join("file")).is_ok(), "another thread");
        fs::remove_dir_all(&base).unwrap();
    }
}
