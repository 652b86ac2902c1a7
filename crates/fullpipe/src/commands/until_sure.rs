//! `--until-sure`: a test that ends once its result is sure.

use fullpipe_record::SureBound;

use super::prelude::*;

/// The flag for a test that ends once its result is sure.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct UntilSureArgument {
    /// End once the result is sure, before --time
    ///
    /// The result is sure if the confidence of its limit is at least 0.9, and the 95 % interval of
    /// its steady rate reaches no further than 5 % to either side; =0.95,2% asks for other bounds.
    /// Says what that saved, and what only more time would show.
    #[arg(
        long,
        value_name = "BOUNDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.9,5%",
        value_parser = sure_bound,
        conflicts_with_all = ["bytes", "blocks", "file", "iperf2"]
    )]
    until_sure: Option<SureBound>,
}

impl UntilSureArgument {
    /// Returns the bound that is asked for, if any.
    ///
    /// # Errors
    /// Fails if the load is of datagrams.
    pub(crate) fn bound(self, request: &Request) -> Result<Option<SureBound>> {
        if self.until_sure.is_some() && request.transport == Transport::Udp {
            let message = "datagrams have no limit but the rate that was asked for; leave out --until-sure, or --udp";
            return Err(usage_failure(message));
        }
        Ok(self.until_sure)
    }
}

fn sure_bound(text: &str) -> Result<SureBound, String> {
    let (confidence, rate) = text
        .split_once(',')
        .ok_or("write for example 0.9,5%: the confidence, and the share of the rate")?;
    let confidence = value_within(
        parse_quantity(confidence)?,
        Ratio::new(0.5)..=Ratio::new(0.99),
        "the confidence must be from 0.5 to 0.99",
    )?;
    let rate = value_within(
        parse_quantity(rate)?,
        Ratio::new(0.001)..=Ratio::new(0.5),
        "the share of the rate must be from 0.1% to 50%",
    )?;
    Ok(SureBound { confidence, rate })
}
