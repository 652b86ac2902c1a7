use fullpipe_record::{Change, Path};

use crate::host::HOST_KEYS;
use crate::key::{NamedSetter, find_key};
use crate::path::{PATH_KEYS, ReadFile, no_files};
use crate::{FlagError, PathSpec};

/// Reads the value of `--path`: `rate=1G,rtt=100ms,loss=1e-4,queue=1bdp,mtu=1500,framing=ethernet`,
/// in any order.
///
/// Keys that are not there keep the value of `default`; a queue in BDPs follows the new rate and
/// RTT.
///
/// # Errors
///
/// A key that does not exist or comes twice, a value that cannot be, a queue of less than a packet.
pub fn parse_path_flag(flag: &str, default: &PathSpec) -> Result<Path, FlagError> {
    parse_path_flag_with(flag, default, &no_files)
}

/// As [`parse_path_flag`], with the traces that it names as `files` reads them.
///
/// # Errors
///
/// As [`parse_path_flag`]; a trace that cannot be read or used.
pub fn parse_path_flag_with(
    flag: &str,
    default: &PathSpec,
    files: ReadFile<'_>,
) -> Result<Path, FlagError> {
    let mut spec = default.clone();
    if flag.split(',').any(|pair| {
        pair.split('=')
            .next()
            .is_some_and(|name| name.trim() == "rate")
    }) {
        spec.forget_traces();
    }
    set_all(flag, &PATH_KEYS, &mut spec, "rate=1G,rtt=100ms")?;
    spec.path_with(files)
}

/// Reads the value of `--sender` or `--receiver`:
/// `tcp_rmem=64MiB,tcp_wmem=64MiB,tcp_moderate_rcvbuf=off`, in any order. `tcp_rmem` and `tcp_wmem`
/// mean their third value, the maximum.
///
/// # Errors
///
/// A key that does not exist or comes twice, a value that cannot be.
pub fn parse_host_flag(flag: &str) -> Result<Vec<Change>, FlagError> {
    let mut changes = Vec::new();
    set_all(
        flag,
        HOST_KEYS,
        &mut changes,
        "tcp_wmem=64MiB,tcp_rmem=64MiB",
    )?;
    Ok(changes)
}

fn set_all<T, S: Fn(&mut T, &str) -> Result<(), String>>(
    flag: &str,
    keys: &[NamedSetter<S>],
    target: &mut T,
    example: &str,
) -> Result<(), FlagError> {
    let mut seen = Vec::new();
    for pair in flag.split(',') {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(FlagError::new(format!(
                "\"{pair}\" is not key=value; write for example {example}"
            )));
        };
        let (name, value) = (name.trim(), value.trim());
        let key = find_key(keys, &[], name).map_err(FlagError::new)?;
        if seen.contains(&name) {
            return Err(FlagError::new(format!("{name}: it is given twice")));
        }
        seen.push(name);
        (key.set)(target, value).map_err(|why| FlagError::new(format!("{name}: {why}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_key_of_a_path() {
        let page = include_str!("../../../docs/scenarios.md");
        for name in PATH_KEYS.iter().map(|key| key.name) {
            assert!(
                page.lines()
                    .any(|line| line.starts_with(&format!("{name} = "))),
                "{name}"
            );
        }
    }
    use fullpipe_record::{Effects, Framing};
    use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
    use proptest::prelude::*;

    fn path(flag: &str) -> Path {
        parse_path_flag(flag, &PathSpec::demo_path()).unwrap()
    }

    #[test]
    fn a_queue_in_bdps_follows_rate_and_rtt() {
        for (flag, bytes) in [
            ("loss=0", 12_500_000),
            ("rate=100M", 1_250_000),
            ("rtt=10ms,rate=100M", 125_000),
            ("queue=0.5bdp,rtt=98ms", 6_125_000),
            ("rate=100M,rtt=1us", 1538),
            ("queue=64KiB", 65_536),
            ("queue=2 packets,mtu=9000", 2 * 9038),
            ("queue=20ms", 2_500_000),
        ] {
            assert_eq!(
                path(flag).forward.queue,
                Some(ByteCount::new(bytes)),
                "{flag}"
            );
        }
    }

    #[test]
    fn a_rate_takes_the_place_of_a_trace_that_the_path_had() {
        let files = |name: &str| {
            Ok(if name == "lte" {
                "1\n2\n"
            } else {
                "0s 5M\n2s 8M\n"
            }
            .to_owned())
        };
        for trace in ["trace=mahimahi lte", "trace=rates steps"] {
            let traced = parse_path_flag_with(trace, &PathSpec::demo_path(), &files).unwrap();
            let same = parse_path_flag("mtu=1500", &PathSpec::from_path(&traced)).unwrap();
            assert_eq!(same, traced);
            let after = parse_path_flag("rate=20M", &PathSpec::from_path(&traced))
                .unwrap()
                .forward;
            assert_eq!(
                (after.rate, after.effects),
                (Some(BitRate::from_mbps(20)), Effects::default()),
                "{trace}"
            );
        }
        let slower = path("changes=10s rate=5M loss=1%");
        let after = parse_path_flag("rate=20M", &PathSpec::from_path(&slower)).unwrap();
        assert_eq!(
            after.forward.effects, slower.forward.effects,
            "it holds until then"
        );
    }

    #[test]
    fn single_keys_of_a_path_can_be_changed() {
        let before = path(
            "rate=10M,rtt=30ms,loss=gilbert-elliott 0.1% 20%,queue=20 packets,aqm=codel,segmentation=exact",
        );
        assert_eq!(
            parse_path_flag("mtu=1500", &PathSpec::from_path(&before)).unwrap(),
            before
        );
        let after = parse_path_flag("queue=0.5bdp,loss=0", &PathSpec::from_path(&before)).unwrap();
        let (before, after) = (before.forward, after.forward);
        assert_eq!(
            (after.queue, after.effects.queue_packets),
            (Some(ByteCount::new(18_750)), None)
        );
        assert_eq!(
            (after.loss, after.effects.losses),
            (Some(Ratio::ZERO), None)
        );
        assert_eq!(
            (after.rate, after.effects.queueing),
            (before.rate, before.effects.queueing)
        );
    }

    #[test]
    fn every_key_sets_its_field_in_both_directions() {
        let path = path("rate=10G,rtt=7ns,loss=1e-4,queue=1M,mtu=9000,framing=ip");
        assert_eq!(path.rtt(), Span::from_nanos(7));
        for direction in [&path.forward, &path.reverse] {
            assert_eq!(direction.rate, Some(BitRate::from_mbps(10_000)));
            assert_eq!(direction.loss, Some(Ratio::new(1e-4)));
            assert_eq!(direction.queue, Some(ByteCount::from_mib(1)));
            assert_eq!(
                (direction.mtu, direction.framing),
                (ByteCount::new(9000), Framing::Ip)
            );
        }
    }

    #[test]
    fn host_settings_are_read_in_the_order_given() {
        assert_eq!(
            parse_host_flag(
                "tcp_wmem=64MiB, tcp_moderate_rcvbuf=0,tcp_rmem=6291456,tcp_window_scaling=on"
            )
            .unwrap(),
            [
                Change::TcpWmemMax(ByteCount::from_mib(64)),
                Change::ModerateRcvbuf(false),
                Change::TcpRmemMax(ByteCount::from_mib(6)),
                Change::WindowScaling(true),
            ]
        );
    }

    #[test]
    fn a_bad_flag_is_reported_in_one_sentence() {
        for (flag, sentence) in [
            (
                "",
                "\"\" is not key=value; write for example rate=1G,rtt=100ms",
            ),
            (
                "rate",
                "\"rate\" is not key=value; write for example rate=1G,rtt=100ms",
            ),
            (
                "rtt=5",
                "rtt: \"5\" is not a time: the unit is missing; write for example 173ms, 50us or 10s",
            ),
            ("mtu=1500,mtu=9000", "mtu: it is given twice"),
            (
                "queue=100",
                "queue: it would hold 100 B, and one packet is 1538 B; make it longer",
            ),
        ] {
            assert_eq!(
                parse_path_flag(flag, &PathSpec::demo_path())
                    .unwrap_err()
                    .to_string(),
                sentence
            );
        }
        let unknown = parse_path_flag("delay=1ms", &PathSpec::demo_path())
            .unwrap_err()
            .to_string();
        assert!(
            unknown.starts_with("\"delay\" is not a key here; the keys are rtt, rate, queue, "),
            "{unknown}"
        );
        assert!(
            unknown.contains(", aqm, policer, ") && unknown.ends_with(", segmentation"),
            "{unknown}"
        );
        assert_eq!(
            parse_host_flag("rmem_max=1").unwrap_err().to_string(),
            "\"rmem_max\" is not a key here; the keys are tcp_rmem, tcp_wmem, tcp_window_scaling, tcp_moderate_rcvbuf"
        );
    }

    proptest! {
        #[test]
        fn no_flag_panics(flag in "\\PC*|([a-z_]{3,8}=[0-9a-zA-Z.%]{0,8},?){0,5}") {
            let _ = parse_path_flag(&flag, &PathSpec::demo_path());
            let _ = parse_host_flag(&flag);
        }
    }
}
