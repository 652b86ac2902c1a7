//! Families of limits, as `cases/families.toml` describes them.

use serde::Deserialize;

use super::case::{PACKET, SEGMENT};
use crate::judged::{JudgedView, Random};
use crate::process::RunError;

/// The table of families.
pub(crate) const FAMILIES: &str = include_str!("../../cases/families.toml");

/// The table of families for the server of speed tests over the web.
pub(crate) const WEB_FAMILIES: &str = include_str!("../../cases/web.toml");

/// A way to limit a transfer; the keys are described in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the table")]
pub(crate) struct Family {
    pub(crate) name: String,
    /// Kind and cause that the diagnosis must name.
    pub(crate) expected: String,
    #[serde(default = "usual_rates")]
    rates: [f64; 2],
    #[serde(default = "usual_packets")]
    packets: [f64; 2],
    #[serde(default)]
    pub(crate) not_from: Vec<JudgedView>,
    #[serde(default)]
    pub(crate) near_end_receives: bool,
    #[serde(default = "usual_controls")]
    pub(crate) controls: Vec<String>,
    #[serde(default)]
    pub(crate) one_stream: bool,
    #[serde(default = "usual_share")]
    pub(crate) at_most: f64,
    #[serde(default)]
    pub(crate) of_left: bool,
    #[serde(default)]
    pub(crate) small_programs: bool,
    #[serde(default)]
    pub(crate) http2: bool,
    #[serde(default = "usual_round_trips")]
    pub(crate) round_trips: f64,
    #[serde(default = "usual_seconds")]
    pub(crate) min_seconds: f64,
    #[serde(default)]
    pub(crate) draws: Vec<Draw>,
    pub(crate) states_rate: Option<bool>,
    #[serde(default)]
    pub(crate) scripts: Vec<[String; 2]>,
    pub(crate) filter: Option<[String; 3]>,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    #[serde(default)]
    pub(crate) sender: Vec<String>,
    #[serde(default)]
    pub(crate) receiver: Vec<String>,
}

fn usual_rates() -> [f64; 2] {
    [5e6, 900e6]
}

fn usual_packets() -> [f64; 2] {
    [40.0, 2500.0]
}

fn usual_controls() -> Vec<String> {
    ["reno", "cubic", "bbr"].map(str::to_owned).to_vec()
}

fn usual_share() -> f64 {
    0.85
}

fn usual_round_trips() -> f64 {
    45.0
}

fn usual_seconds() -> f64 {
    6.0
}

/// A number that a plant needs.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Draw {
    Uniform([f64; 2]),
    /// The logarithm is uniform.
    Log([f64; 2]),
    Pick(Vec<f64>),
    /// 1 with this probability, else 0.
    Chance(f64),
    /// 0 for the near router, 1 for the far one.
    Router,
}

impl Draw {
    pub(crate) fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Uniform([low, high]) => random.uniform(*low, *high),
            Self::Log([low, high]) => random.log_uniform(*low, *high),
            Self::Pick(values) => random.pick(values),
            Self::Chance(probability) => f64::from(u8::from(random.chance(*probability))),
            Self::Router => random.pick(&[0.0, 1.0]),
        }
    }
}

impl Family {
    /// Returns every family of a `table`, in the order in which they are drawn.
    ///
    /// # Errors
    /// Fails if the table cannot be read.
    pub(crate) fn read_all(table: &str) -> Result<Vec<Self>, RunError> {
        #[derive(Deserialize)]
        struct File {
            family: Vec<Family>,
        }
        Ok(toml::from_str::<File>(table)?.family)
    }

    /// Draws rate and round-trip time until they suit the family.
    pub(crate) fn draw_way(&self, random: &mut Random) -> Way {
        loop {
            let way = Way {
                rate: random.log_uniform(self.rates[0], self.rates[1]),
                rtt: random.log_uniform(0.003, 0.3),
            };
            if (self.packets[0]..self.packets[1]).contains(&way.packets()) {
                return way;
            }
        }
    }

    /// Draws a congestion control; none is drawn where there is one.
    pub(crate) fn draw_control(&self, random: &mut Random) -> String {
        match &self.controls[..] {
            [only] => only.clone(),
            several => random.pick(several),
        }
    }
}

/// Rate in bit/s, round-trip time in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) rate: f64,
    pub(crate) rtt: f64,
}

impl Way {
    /// Bandwidth × round-trip time in packets.
    pub(crate) fn packets(self) -> f64 {
        self.rate * self.rtt / 8.0 / PACKET
    }

    /// Returns the share of packets whose loss by chance leaves this share of the rate. Reno: √(3⁄2p)
    /// packets (Mathis and others, 1997); CUBIC is like it where windows are small.
    pub(crate) fn loss_that_leaves(self, left: f64) -> f64 {
        1.5 / (self.packets() * left).powi(2)
    }

    /// Bandwidth × round-trip time in bytes of data.
    pub(crate) fn bytes(self) -> f64 {
        self.packets() * SEGMENT
    }

    /// Data that the path carries, in bit/s.
    pub(crate) fn goodput(self) -> f64 {
        self.rate * SEGMENT / PACKET
    }
}
