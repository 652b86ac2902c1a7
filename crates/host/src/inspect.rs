use fullpipe_record::{BufferTriple, HostSettings, KernelVersion};
use fullpipe_units::ByteCount;

use crate::sysctl::{SysctlError, SysctlTree};

/// The settings that bear on bulk TCP. What does not exist in this namespace or on this kernel, and has a meaning
/// without, is left out or given the kernel's default.
///
/// # Errors
/// If a setting that every kernel has cannot be read, or is not what it should be.
pub fn inspect(tree: &SysctlTree) -> Result<HostSettings, SysctlError> {
    let text = |name: &str| tree.read(name);
    Ok(HostSettings {
        kernel: kernel_version()?,
        tcp_rmem: triple(tree, "net.ipv4.tcp_rmem")?,
        tcp_wmem: triple(tree, "net.ipv4.tcp_wmem")?,
        rmem_max: present(size(tree, "net.core.rmem_max"))?,
        wmem_max: present(size(tree, "net.core.wmem_max"))?,
        window_scaling: switch(tree, "net.ipv4.tcp_window_scaling")?,
        timestamps: switch(tree, "net.ipv4.tcp_timestamps")?,
        sack: switch(tree, "net.ipv4.tcp_sack")?,
        moderate_rcvbuf: switch(tree, "net.ipv4.tcp_moderate_rcvbuf")?,
        adv_win_scale: present(number(tree, "net.ipv4.tcp_adv_win_scale"))?.unwrap_or(1),
        congestion_control: text("net.ipv4.tcp_congestion_control")?,
        available_congestion_controls: text("net.ipv4.tcp_available_congestion_control")?
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    })
}

fn kernel_version() -> Result<KernelVersion, SysctlError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    release.parse().map_err(|_| SysctlError::Malformed {
        name: "kernel.osrelease".to_owned(),
        text: release,
        expected: "a kernel release",
    })
}

/// The three sizes of `tcp_rmem` or `tcp_wmem`.
pub(crate) fn triple(tree: &SysctlTree, name: &str) -> Result<BufferTriple, SysctlError> {
    const EXPECTED: &str = "three sizes in bytes";
    match tree.parse::<u64>(name, EXPECTED)?.as_slice() {
        &[min, default, max] => {
            Ok(BufferTriple { min: ByteCount::new(min), default: ByteCount::new(default), max: ByteCount::new(max) })
        }
        _ => Err(malformed(tree, name, EXPECTED)),
    }
}

fn size(tree: &SysctlTree, name: &str) -> Result<ByteCount, SysctlError> {
    single(tree, name, "a size in bytes").map(ByteCount::new)
}

fn number(tree: &SysctlTree, name: &str) -> Result<i32, SysctlError> {
    single(tree, name, "a number")
}

fn switch(tree: &SysctlTree, name: &str) -> Result<bool, SysctlError> {
    single::<u8>(tree, name, "0 or a positive number").map(|value| value != 0)
}

fn single<T: std::str::FromStr + Copy>(
    tree: &SysctlTree,
    name: &str,
    expected: &'static str,
) -> Result<T, SysctlError> {
    match tree.parse::<T>(name, expected)?.as_slice() {
        &[value] => Ok(value),
        _ => Err(malformed(tree, name, expected)),
    }
}

fn malformed(tree: &SysctlTree, name: &str, expected: &'static str) -> SysctlError {
    SysctlError::Malformed { name: name.to_owned(), text: tree.read(name).unwrap_or_default(), expected }
}

fn present<T>(read: Result<T, SysctlError>) -> Result<Option<T>, SysctlError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_read() {
        let settings = inspect(&SysctlTree::of_this_host()).unwrap();
        assert!(settings.tcp_rmem.max >= settings.tcp_rmem.min);
        assert!(settings.available_congestion_controls.contains(&settings.congestion_control));
    }

    #[test]
    fn a_triple_of_two_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("net/ipv4")).unwrap();
        std::fs::write(folder.path().join("net/ipv4/tcp_rmem"), "4096 87380\n").unwrap();
        let error = triple(&SysctlTree::at(folder.path()), "net.ipv4.tcp_rmem").unwrap_err();
        assert_eq!(error.to_string(), "net.ipv4.tcp_rmem is \"4096 87380\", which is not three sizes in bytes");
    }
}
