use std::io;
use std::str::FromStr;

use fullpipe_record::{BufferTriple, HostReport, HostSettings, KernelVersion};
use fullpipe_units::ByteCount;

#[cfg(target_os = "linux")]
use crate::sysctl::SysctlTree;
use crate::sysctl::{SysctlError, SysctlResult};

/// The settings that bear on bulk TCP. What does not exist in this namespace or on this kernel, and
/// has a meaning without, is left out or given the kernel's default.
///
/// # Errors
/// If a setting that every kernel has cannot be read, or is not what it should be.
#[cfg(target_os = "linux")]
pub fn inspect_host(tree: &SysctlTree) -> SysctlResult<HostSettings> {
    parse_settings(kernel_version()?, &|name| tree.read(name))
}

/// Returns the settings that bear on bulk TCP of a host that [`host_report`](crate::host_report) has read.
///
/// # Errors
/// Fails if a setting that every kernel has is missing, or is not what it should be.
pub fn settings_of(report: &HostReport) -> SysctlResult<HostSettings> {
    parse_settings(report.kernel, &|name| {
        report.sysctls.get(name).cloned().ok_or_else(|| {
            let cause = io::Error::new(io::ErrorKind::NotFound, "the record of the host has none");
            SysctlError::failed("read", name, cause)
        })
    })
}

/// Returns the text of the sysctl with this dotted name.
type Texts<'t> = &'t dyn Fn(&str) -> SysctlResult<String>;

fn parse_settings(kernel: KernelVersion, texts: Texts<'_>) -> SysctlResult<HostSettings> {
    Ok(HostSettings {
        kernel,
        system: None,
        tcp_rmem: buffer_triple(texts, "net.ipv4.tcp_rmem")?,
        tcp_wmem: buffer_triple(texts, "net.ipv4.tcp_wmem")?,
        rmem_max: missing_as_none(byte_size(texts, "net.core.rmem_max"))?,
        wmem_max: missing_as_none(byte_size(texts, "net.core.wmem_max"))?,
        window_scaling: boolean_value(texts, "net.ipv4.tcp_window_scaling")?,
        timestamps: boolean_value(texts, "net.ipv4.tcp_timestamps")?,
        sack: boolean_value(texts, "net.ipv4.tcp_sack")?,
        moderate_rcvbuf: boolean_value(texts, "net.ipv4.tcp_moderate_rcvbuf")?,
        adv_win_scale: missing_as_none(integer_value(texts, "net.ipv4.tcp_adv_win_scale"))?
            .unwrap_or(1),
        congestion_control: texts("net.ipv4.tcp_congestion_control")?,
        available_congestion_controls: texts("net.ipv4.tcp_available_congestion_control")?
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    })
}

/// Returns the version of the running kernel.
///
/// # Errors
/// Fails if the kernel's release does not begin with a version.
#[cfg(target_os = "linux")]
pub fn kernel_version() -> SysctlResult<KernelVersion> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    release.parse().map_err(|_| SysctlError::Malformed {
        name: "kernel.osrelease".to_owned(),
        text: release,
        expected: "a kernel release",
    })
}

/// The three sizes of `tcp_rmem` or `tcp_wmem`.
fn buffer_triple(texts: Texts<'_>, name: &str) -> SysctlResult<BufferTriple> {
    let [min, default, max] =
        parse_words::<u64, 3>(texts, name, "three sizes in bytes")?.map(ByteCount::new);
    Ok(BufferTriple { min, default, max })
}

fn byte_size(texts: Texts<'_>, name: &str) -> SysctlResult<ByteCount> {
    parse_words(texts, name, "a size in bytes").map(|[bytes]| ByteCount::new(bytes))
}

fn integer_value(texts: Texts<'_>, name: &str) -> SysctlResult<i32> {
    parse_words(texts, name, "a number").map(|[number]| number)
}

fn boolean_value(texts: Texts<'_>, name: &str) -> SysctlResult<bool> {
    parse_words::<u8, 1>(texts, name, "0 or a positive number").map(|[value]| value != 0)
}

/// Returns the words of a sysctl, each parsed; `expected` stands in the error for what they should
/// have been.
fn parse_words<T: FromStr, const COUNT: usize>(
    texts: Texts<'_>,
    name: &str,
    expected: &'static str,
) -> SysctlResult<[T; COUNT]> {
    let text = texts(name)?;
    let words: Option<Vec<T>> = text
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    words
        .and_then(|words| words.try_into().ok())
        .ok_or_else(|| SysctlError::Malformed {
            name: name.to_owned(),
            text,
            expected,
        })
}

fn missing_as_none<T>(read: SysctlResult<T>) -> SysctlResult<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::HostSystem;
    use crate::show::host_report;

    #[test]
    fn this_host_can_be_read() {
        let settings = inspect_host(&SysctlTree::of_this_host()).unwrap();
        assert!(settings.tcp_rmem.max >= settings.tcp_rmem.min);
        assert!(
            settings
                .available_congestion_controls
                .contains(&settings.congestion_control)
        );
    }

    #[test]
    fn a_triple_of_two_is_refused_by_name() {
        let error =
            buffer_triple(&|_| Ok("4096 87380".to_owned()), "net.ipv4.tcp_rmem").unwrap_err();
        assert_eq!(
            error.to_string(),
            "net.ipv4.tcp_rmem is \"4096 87380\", which is not three sizes in bytes"
        );
    }

    #[test]
    fn the_record_of_a_host_has_the_same_settings_and_one_that_it_lacks_is_named() {
        let mut report = host_report(&HostSystem::of_this_host()).unwrap();
        assert_eq!(
            settings_of(&report).unwrap(),
            inspect_host(&SysctlTree::of_this_host()).unwrap()
        );
        report.sysctls.remove("net.core.rmem_max");
        assert_eq!(settings_of(&report).unwrap().rmem_max, None);
        report.sysctls.remove("net.ipv4.tcp_rmem");
        let error = settings_of(&report).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read net.ipv4.tcp_rmem: the record of the host has none"
        );
    }
}
