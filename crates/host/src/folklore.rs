//! Advice that is often copied, and harms.

use fullpipe_model::window;
use fullpipe_record::{Folklore, HostReport, KernelVersion};
use fullpipe_units::{ByteCount, Span};

/// Returns the folklore that this host follows, in the running kernel or in a file that is read at
/// boot.
pub(crate) fn followed_folklore(report: &HostReport, rtt: Span) -> Vec<Folklore> {
    let judge = FolkloreContext {
        kernel: report.kernel,
        memory: report.memory,
        rtt,
    };
    let running = report
        .sysctls
        .iter()
        .map(|(name, value)| (None, name, value));
    let files = report.managers.iter().flat_map(|manager| {
        let file = manager.name.starts_with('/').then_some(&manager.name);
        manager
            .sets
            .iter()
            .map(move |(name, value)| (file, name, value))
    });
    let all = running.chain(files).filter_map(|(file, name, value)| {
        let why = judge.why_harmful(name, value)?;
        Some(Folklore {
            setting: name.clone(),
            value: value.clone(),
            file: file.cloned(),
            why,
        })
    });
    all.collect()
}

struct FolkloreContext {
    kernel: KernelVersion,
    memory: Option<ByteCount>,
    rtt: Span,
}

/// From here on a connection takes more memory at once than it is likely to need.
const LARGE_DEFAULT: ByteCount = ByteCount::from_mib(4);

/// Since this version the kernel finds the share of a buffer that is window by itself (commit
/// dfa2f0483360).
const WITHOUT_WIN_SCALE: KernelVersion = KernelVersion::new(6, 6);

/// `net.ipv4.tcp_tw_recycle` went (commit 4396e46187ca).
const WITHOUT_RECYCLING: KernelVersion = KernelVersion::new(4, 12);

impl FolkloreContext {
    fn why_harmful(&self, name: &str, value: &str) -> Option<String> {
        let is_off = value.trim() == "0";
        Some(match name.strip_prefix("net.ipv4.")? {
            "tcp_window_scaling" if is_off => {
                let most = window::rate_of_window(ByteCount::new(65_535), self.rtt);
                format!("without window scaling no window is larger than 64 KiB: {most} over {}, on any link", self.rtt)
            }
            "tcp_sack" if is_off => {
                "without SACK each packet lost of a window costs a round trip of its own; it saves nothing on a \
                 healthy path"
                    .to_owned()
            }
            "tcp_timestamps" if is_off => {
                "without timestamps old packets may be taken for new ones once 4 GiB are in flight within their \
                 lifetime (RFC 7323), and round trips are measured less often; it saves 12 bytes a packet"
                    .to_owned()
            }
            "tcp_moderate_rcvbuf" if is_off => {
                "receive buffers stay at their default size: they are no longer tuned".to_owned()
            }
            "tcp_mem" => {
                let allowed = nth_size(value, 2)?.get().checked_mul(PAGE).map_or(ByteCount::new(u64::MAX), ByteCount::new);
                let memory = self.memory.filter(|memory| allowed > *memory)?;
                format!("it counts pages, not bytes: this lets TCP take {allowed} of {memory} of memory")
            }
            "tcp_adv_win_scale" if self.kernel < WITHOUT_WIN_SCALE && nth_number(value, 0)? <= -2 => {
                "only a quarter of each receive buffer, or less, is advertised as window".to_owned()
            }
            "tcp_rmem" | "tcp_wmem" if nth_size(value, 1)? >= LARGE_DEFAULT => {
                format!(
                    "its second value is what each new connection begins with, idle ones too: {}; the third is the one \
                     that long paths need",
                    nth_size(value, 1)?
                )
            }
            "tcp_tw_recycle" if self.kernel >= WITHOUT_RECYCLING => {
                "the kernel has had no such setting since 4.12: it broke connections from behind NAT".to_owned()
            }
            _ => return None,
        })
    }
}

fn nth_number(value: &str, at: usize) -> Option<i64> {
    value.split_whitespace().nth(at)?.parse().ok()
}

fn nth_size(value: &str, at: usize) -> Option<ByteCount> {
    u64::try_from(nth_number(value, at)?)
        .ok()
        .map(ByteCount::new)
}

/// `tcp_mem` counts them.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmful_values_are_named_and_usual_ones_are_not() {
        let judge = |kernel| FolkloreContext {
            kernel,
            memory: Some(ByteCount::from_mib(8192)),
            rtt: Span::from_millis(100),
        };
        let new = judge(KernelVersion::new(6, 18));
        for (name, value) in [
            ("tcp_window_scaling", "0"),
            ("tcp_sack", "0"),
            ("tcp_timestamps", "0"),
            ("tcp_moderate_rcvbuf", "0"),
            ("tcp_mem", "16777216 16777216 16777216"),
            ("tcp_rmem", "4096 16777216 33554432"),
            ("tcp_tw_recycle", "1"),
        ] {
            assert!(
                new.why_harmful(&format!("net.ipv4.{name}"), value)
                    .is_some(),
                "{name}"
            );
        }
        for (name, value) in [
            ("tcp_window_scaling", "1"),
            ("tcp_mem", "190000 253000 380000"),
            ("tcp_rmem", "4096 131072 67108864"),
            ("tcp_adv_win_scale", "-2"),
            ("tcp_mem", "rubbish"),
            ("tcp_mem", "1 2 9223372036854775807 4"),
        ] {
            let huge = value.contains("9223372036854775807");
            assert_eq!(
                new.why_harmful(&format!("net.ipv4.{name}"), value)
                    .is_some(),
                huge,
                "{name} {value}"
            );
        }
        let old = judge(KernelVersion::new(5, 15));
        assert!(
            old.why_harmful("net.ipv4.tcp_adv_win_scale", "-2")
                .is_some()
        );
        let scaling = new.why_harmful("net.ipv4.tcp_window_scaling", "0").unwrap();
        assert!(scaling.contains("5.243 Mbit/s over 100 ms"), "{scaling}");
    }
}
