//! The results of a run, read from the output of each program.

use std::time::Duration;

use serde_json::Value;

use crate::process::{Ended, last_words};
use crate::program::Program;

/// The data that arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    pub(crate) bytes: u64,
    /// Time in which it arrived.
    pub(crate) time: Duration,
    /// Of UDP.
    pub(crate) datagrams: Option<Datagrams>,
}

impl Figures {
    /// Returns what arrived, over the time in which it did.
    pub(crate) fn bits_per_second(self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64()
    }
}

/// The fate of datagrams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Datagrams {
    pub(crate) arrived: u64,
    pub(crate) lost: u64,
}

impl Datagrams {
    /// Share of all that were sent.
    pub(crate) fn share_lost(self) -> f64 {
        self.lost as f64 / (self.arrived + self.lost).max(1) as f64
    }
}

/// Returns what `program`, as a client, says of a run that has ended; for iperf2, whose client does
/// not know what arrived, what its server wrote. An error is in the program's words.
pub(crate) fn read(program: Program, client: &Ended, server: &str) -> Result<Figures, String> {
    // iperf3 may say what went wrong in its document, and end with success.
    let document = serde_json::from_str::<Value>(&client.stdout).unwrap_or_default();
    if let Some(error) = document["error"]
        .as_str()
        .or(document["error"]["message"].as_str())
    {
        return Err(last_words(error, "it failed"));
    }
    if !client.succeeded {
        return Err(last_words(&client.stderr, "it failed without a word"));
    }
    let figures = match program {
        Program::Fullpipe => of_fullpipe(&document),
        Program::Iperf3 | Program::DropIn => of_iperf3(&document),
        Program::Iperf2 => of_iperf2(server),
    };
    figures
        .filter(|figures| figures.bytes > 0)
        .ok_or_else(|| "it does not say what arrived".to_owned())
}

fn of_fullpipe(document: &Value) -> Option<Figures> {
    let summary = &document["measurement"]["summary"];
    let datagrams = &summary["datagrams"];
    Some(Figures {
        bytes: summary["received"].as_u64()?,
        time: seconds(&summary["duration"])?,
        datagrams: datagrams
            .is_object()
            .then(|| of_datagrams(&datagrams["received"], &datagrams["lost"]))
            .flatten(),
    })
}

/// iperf3 3.12 counts lost datagrams in `sum`, newer ones in `sum_received` too; what arrived, all
/// count in bytes.
fn of_iperf3(document: &Value) -> Option<Figures> {
    let (received, length) = (
        &document["end"]["sum_received"],
        &document["start"]["test_start"]["blksize"],
    );
    let bytes = received["bytes"].as_u64()?;
    let lost = received["lost_packets"].as_u64();
    Some(Figures {
        bytes,
        time: seconds(&received["seconds"])?,
        datagrams: lost.zip(length.as_u64()).map(|(lost, length)| Datagrams {
            arrived: bytes / length.max(1),
            lost,
        }),
    })
}

/// The lines that its server writes with `-y C`, one for each stream.
fn of_iperf2(server: &str) -> Option<Figures> {
    let streams: Vec<Figures> = server
        .lines()
        .map(of_iperf2_stream)
        .collect::<Option<_>>()?;
    let datagrams = streams.iter().map(|stream| stream.datagrams);
    Some(Figures {
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        time: streams.iter().map(|stream| stream.time).max()?,
        datagrams: datagrams
            .reduce(|sum, next| {
                sum.zip(next).map(|(a, b)| Datagrams {
                    arrived: a.arrived + b.arrived,
                    lost: a.lost + b.lost,
                })
            })
            .flatten(),
    })
}

/// Time stamp, addresses and ports of both ends, number, interval, bytes, bits a second; of UDP
/// also jitter in ms, lost, all, lost percent, out of order. The interval has one digit after the
/// point only: bytes and rate say it better.
fn of_iperf2_stream(line: &str) -> Option<Figures> {
    let columns: Vec<&str> = line.split(',').collect();
    let number = |column: usize| columns.get(column)?.parse::<u64>().ok();
    let (bytes, rate) = (number(7)?, number(8)?);
    let datagrams = number(10).zip(number(11));
    Some(Figures {
        bytes,
        time: Duration::try_from_secs_f64(bytes as f64 * 8.0 / rate as f64).ok()?,
        datagrams: datagrams.map(|(lost, all)| Datagrams {
            arrived: all.saturating_sub(lost),
            lost,
        }),
    })
}

fn of_datagrams(arrived: &Value, lost: &Value) -> Option<Datagrams> {
    Some(Datagrams {
        arrived: arrived.as_u64()?,
        lost: lost.as_u64()?,
    })
}

fn seconds(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()?)
        .ok()
        .filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(stdout: &str) -> Ended {
        Ended {
            succeeded: true,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            ..Ended::default()
        }
    }

    fn rate(figures: &Figures) -> f64 {
        (figures.bytes * 8) as f64 / figures.time.as_secs_f64()
    }

    #[test]
    fn fullpipe_says_what_arrived() {
        let tcp = read(
            Program::Fullpipe,
            &said(include_str!("recorded/fullpipe-tcp.json")),
            "",
        )
        .unwrap();
        assert_eq!((tcp.bytes, tcp.datagrams), (2_231_663_874, None));
        assert!(
            (rate(&tcp) / 35_667_007_494.0 - 1.0).abs() < 1e-6,
            "{tcp:?}"
        );
        let udp = read(
            Program::Fullpipe,
            &said(include_str!("recorded/fullpipe-udp.json")),
            "",
        )
        .unwrap();
        assert_eq!(
            udp.datagrams,
            Some(Datagrams {
                arrived: 47_283,
                lost: 42_306
            })
        );
    }

    #[test]
    fn iperf3_says_what_arrived() {
        let tcp = read(
            Program::Iperf3,
            &said(include_str!("recorded/iperf3-3.12-tcp.json")),
            "",
        )
        .unwrap();
        assert_eq!(tcp.datagrams, None);
        assert!(tcp.bytes > 1_000_000_000 && rate(&tcp) > 1e10, "{tcp:?}");
        let udp = read(
            Program::Iperf3,
            &said(include_str!("recorded/iperf3-3.12-udp.json")),
            "",
        )
        .unwrap();
        assert_eq!(udp.bytes, 70_335_152);
        let datagrams = udp.datagrams.unwrap();
        assert_eq!(
            datagrams,
            Datagrams {
                arrived: 48_574,
                lost: 72_476
            }
        );
        assert!(
            (datagrams.share_lost() - 0.598_727_8).abs() < 1e-6,
            "{datagrams:?}"
        );
    }

    #[test]
    fn the_server_of_iperf2_says_what_arrived() {
        let client = said("");
        let tcp = include_str!("recorded/iperf2-2.1.8-server-tcp-2-streams.csv");
        let tcp = read(Program::Iperf2, &client, tcp).unwrap();
        assert_eq!(
            (tcp.bytes, tcp.datagrams),
            (1_764_360_252 + 1_949_171_772, None)
        );
        assert!(
            (rate(&tcp) / (28_173_192_261.0 + 31_184_752_527.0) - 1.0).abs() < 0.01,
            "{tcp:?}"
        );
        let udp = read(
            Program::Iperf2,
            &client,
            include_str!("recorded/iperf2-2.1.8-server-udp.csv"),
        )
        .unwrap();
        assert_eq!(
            udp.datagrams,
            Some(Datagrams {
                arrived: 90_035 - 59_566,
                lost: 59_566
            })
        );
    }

    #[test]
    fn what_went_wrong_is_reported_in_the_programs_words() {
        let ours = read(
            Program::Fullpipe,
            &said(include_str!("recorded/fullpipe-refused.json")),
            "",
        )
        .unwrap_err();
        assert!(ours.starts_with("cannot connect to 127.0.0.1"), "{ours}");
        // It ended with success.
        let theirs = said(include_str!("recorded/iperf3-3.12-refused.json"));
        let theirs = read(Program::Iperf3, &theirs, "").unwrap_err();
        assert_eq!(theirs, "unable to connect to server: Connection refused");
        let failed = Ended {
            succeeded: false,
            stderr: "ERROR: delay too large\n".to_owned(),
            ..said("")
        };
        assert_eq!(
            read(Program::Iperf2, &failed, "").unwrap_err(),
            "ERROR: delay too large"
        );
    }

    #[test]
    fn words_that_are_no_result_are_none() {
        for program in [Program::Fullpipe, Program::Iperf3, Program::Iperf2] {
            for text in [
                "",
                "{}",
                "[",
                "a,b,c",
                "0,0,0,0,0,0,0,0,0",
                "1,2,3,4,5,6,7,8,0",
                "\u{0}",
            ] {
                assert!(
                    read(program, &said(text), text).is_err(),
                    "{program:?} {text}"
                );
            }
        }
    }
}
