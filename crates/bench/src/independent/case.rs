//! A case: a transfer over a path, with one planted limit, and the view from which it is judged.

use fullpipe_host::usual_path;
use fullpipe_record::Path;
use fullpipe_units::{BitRate, Ratio, Span};

use super::network::{Host, PathPlan};
use crate::judged::JudgedView;

/// Ports of the server, and of the receiver of cross traffic.
pub(crate) const PORT: u16 = 5201;
pub(crate) const CROSS_TRAFFIC_PORT: u16 = 5301;

/// A transfer with one planted limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// Number, view, verdict and parameters.
    pub(crate) name: String,
    /// From which it was drawn.
    pub(crate) seed: u64,
    pub(crate) view: JudgedView,
    /// Kind and cause that the diagnosis must name.
    pub(crate) expected: String,
    pub(crate) path: PathPlan,
    /// Share of the path's rate that a transfer with this limit cannot exceed.
    pub(crate) at_most: f64,
    /// Set if the user states the rate of the path.
    pub(crate) states_rate: bool,
    /// Scripts of the shell that plant the limit.
    pub(crate) scripts: Vec<(Host, String)>,
    /// A control group that gives a host's program this share of a processor.
    pub(crate) quota: Option<(Host, Ratio)>,
    /// Time added to each call of this name by the far program.
    pub(crate) slow_call: Option<(&'static str, Span)>,
    /// A script that changes the limit while data flows.
    pub(crate) change: Option<(Host, String)>,
    /// The host of the server: the far one, or the near one over loopback.
    pub(crate) server_host: Host,
    /// The program at the far end. `BENCH` stands for this program, `FULLPIPE` for the one under
    /// test, and `SCRATCH` for a folder of the case.
    pub(crate) server: Vec<String>,
    /// The arguments that follow `fullpipe diagnose --json`.
    pub(crate) client: Vec<String>,
    /// Set if the far end is `fullpipe serve --web`, whose own verdict is judged.
    pub(crate) is_of_web: bool,
    /// Sender of other data from router to router, and its server.
    pub(crate) cross_traffic: Option<[Vec<String>; 2]>,
}

impl Case {
    /// Lets the program under test send for as long as `duration`, in place of its own time.
    pub(crate) fn last_for(&mut self, duration: Span) {
        let time = self.client.iter().position(|word| word == "-t");
        if let Some(seconds) = time.and_then(|at| self.client.get_mut(at + 1)) {
            *seconds = format!("{:.0}", duration.as_secs_f64());
        }
    }

    /// Returns the path of the data and back, of which the planted limit need not be a part.
    pub(crate) fn path(&self) -> Path {
        let mut path = usual_path(self.path.rtt, self.stated_rate());
        for direction in [&mut path.forward, &mut path.reverse] {
            direction.queue = Some(self.path.queue.scale_by(ON_THE_WIRE / PACKET));
        }
        let loss = self.path.loss.into_iter().fold(0.0, f64::max);
        path.forward.loss = (loss > 0.0).then(|| Ratio::new(loss));
        path
    }

    /// Returns the rate of the path as `fullpipe` counts it: with all that Ethernet adds to a
    /// packet.
    pub(crate) fn stated_rate(&self) -> BitRate {
        self.path.rate.scale_by(ON_THE_WIRE / PACKET)
    }
}

/// Bytes of a full packet with all that Ethernet adds, with its header alone, and of the data in
/// it.
const ON_THE_WIRE: f64 = 1538.0;
pub(crate) const PACKET: f64 = 1514.0;
pub(crate) const SEGMENT: f64 = 1448.0;
