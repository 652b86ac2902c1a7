//! Remedies of rates and paces: those that hold a sender without need are lifted, and one is set where it loses less.

use fullpipe_record::{At, Change, Remedy, Scope};
use fullpipe_units::BitRate;

use crate::figures::Figures;
use crate::outlook::Outlook;
use crate::pacing;
use crate::policer_rate;
use crate::remedies::Advice;
use crate::thresholds::{CLEARLY_BELOW, PACE_AFTER_SLOW_START, PACE_BELOW, PACE_OF_SLOW_START};

impl Advice<'_> {
    /// `None` where the load is another program's, which was asked for its rate by somebody else.
    pub(crate) fn higher_rate(&self) -> Option<Remedy> {
        let rate = self.evidence.request.rate?;
        let why = format!(
            "The load was asked to offer {rate} on each connection and keeps to it; without that it offers all that the \
             connection takes."
        );
        Some(self.remedy("higher-rate", Scope::Application, At::Sender, vec![Change::Rate(None)], why))
    }

    /// The same.
    pub(crate) fn higher_pace(&self) -> Option<Remedy> {
        let pace = self.evidence.request.pacing?;
        let why = format!(
            "The load was asked for a greatest pace of {pace} on each connection; without that the congestion control sets the \
             pace."
        );
        Some(self.remedy("higher-pace", Scope::Application, At::Sender, vec![Change::MaxPacingRate(None)], why))
    }

    /// The kernel's own share of window ÷ round trip, in the part of a transfer in which it was seen to be lower; `None` where
    /// that was not seen.
    pub(crate) fn default_pacing_ratios(&self) -> Option<Remedy> {
        let [in_slow_start, after_it] = pacing::percents(&Figures::of(self.evidence));
        let lowered = [
            ("net.ipv4.tcp_pacing_ss_ratio", in_slow_start, PACE_OF_SLOW_START),
            ("net.ipv4.tcp_pacing_ca_ratio", after_it, PACE_AFTER_SLOW_START),
        ]
        .map(|(name, seen, usual)| Some((name, seen.filter(|seen| is_clearly_below(*seen, usual))?, usual)));
        let seen: Vec<String> = lowered.iter().flatten().map(|(name, seen, _)| format!("{seen} % ({name})")).collect();
        let sysctl =
            |(name, _, usual): &(&str, u32, u32)| Change::Sysctl { name: (*name).to_owned(), value: usual.to_string() };
        let changes: Vec<Change> = lowered.iter().flatten().map(sysctl).collect();
        let why = format!(
            "The kernel paces at {} of window ÷ round trip: below 100 the window is never used up. By default it is 200 in slow \
             start and 120 after it.",
            seen.join(" and ")
        );
        let at = At::Sender;
        (!changes.is_empty()).then(|| self.remedy("default-pacing-ratios", Scope::Namespace, at, changes, why))
    }

    /// `None` where the policer's rate does not show.
    pub(crate) fn pace_below_the_policer(&self) -> Option<Remedy> {
        let passes = policer_rate::lower(&Figures::of(self.evidence))?;
        let why = format!(
            "What exceeds the policer's rate is thrown away, and {passes} of data is known to pass it: a greatest pace a little \
             below that loses nothing. The policer may let more pass than a sender that it holds down has shown."
        );
        self.pace_below(passes, "pace-below-the-policer", why)
    }

    /// `None` where the bottleneck's rate was not told and does not show.
    pub(crate) fn pace_below_the_bottleneck(&self) -> Option<Remedy> {
        let stated = self.outlook.as_ref().and_then(Outlook::stated_capacity);
        let passes = stated.or_else(|| policer_rate::lower(&Figures::of(self.evidence)))?;
        let why = format!(
            "The queue of the bottleneck is shorter than the bursts, and {passes} of data passes it: a greatest pace a little \
             below that sends no longer bursts than the packets of a millisecond, which may still be more than the queue holds."
        );
        self.pace_below(passes, "pace-below-the-bottleneck", why)
    }

    /// `None` where the load is another program's.
    fn pace_below(&self, passes: BitRate, id: &str, why: String) -> Option<Remedy> {
        let streams = self.evidence.request.streams.max(1);
        let pace = passes.scaled(PACE_BELOW / f64::from(streams));
        let changes = vec![Change::MaxPacingRate(Some(pace))];
        let ours = self.evidence.program.is_none() && pace > BitRate::ZERO;
        ours.then(|| self.remedy(id, Scope::Socket, At::Sender, changes, why))
    }
}

fn is_clearly_below(seen: u32, usual: u32) -> bool {
    f64::from(seen) < f64::from(usual) * CLEARLY_BELOW
}
