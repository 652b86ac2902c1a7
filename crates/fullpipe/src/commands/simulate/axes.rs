//! Lists and ranges of path and load, and their combinations.

use fullpipe_model::calc::{QuantitySetting, load_fault, load_of_inputs, numbers_between};
use fullpipe_record::{Inputs, Quantity};

use crate::commands::prelude::*;
use crate::values::{QuantityValues, values_parser};

/// Combinations of one table.
const MAX_COMBINATIONS: usize = 10_000;

/// Quantities of the path that may be lists or ranges.
#[derive(Debug, Args)]
#[command(next_help_heading = "Path")]
pub(in crate::commands) struct PathLists {
    /// Rate of the path, as the key `rate` of --path
    #[arg(long, value_name = "RATE", value_parser = values_parser(Quantity::Bandwidth))]
    bandwidth: Option<QuantityValues>,
    /// Round-trip time of the path, as the key `rtt`
    #[arg(long, short, value_name = "TIME", value_parser = values_parser(Quantity::Rtt))]
    rtt: Option<QuantityValues>,
    /// Queue before the bottleneck, as the key `queue`: 0.5bdp, 64KiB, 100packets, 20ms
    #[arg(long, value_name = "QUEUE", value_parser = parse_queues)]
    queue: Option<QueueSizes>,
    /// Share of packets lost, as the key `loss`
    #[arg(long, value_name = "RATIO", value_parser = values_parser(Quantity::Loss))]
    loss: Option<QuantityValues>,
    /// Maximum size of an IP packet, as the key `mtu`
    #[arg(long, value_name = "BYTES", value_parser = values_parser(Quantity::Mtu))]
    mtu: Option<QuantityValues>,
}

/// Sizes of a queue, each as the key `queue` of a path takes it.
#[derive(Debug, Clone)]
struct QueueSizes(Vec<String>);

/// One combination: keys of a path, as `rate=100000000bit/s`, and the values of the load.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct AxisCombination {
    pub(in crate::commands) path: Vec<String>,
    pub(in crate::commands) load: Vec<QuantitySetting>,
}

impl AxisCombination {
    /// Returns the load of this combination, the rest as in `request`.
    ///
    /// # Errors
    /// Fails if a value has no effect beside another.
    pub(in crate::commands) fn to_request(&self, request: Request) -> Result<Request> {
        let mut inputs = Inputs {
            stated: request.stated_load(),
            ..Inputs::default()
        };
        self.load
            .iter()
            .for_each(|setting| setting.apply_to(&mut inputs));
        match load_fault(&inputs) {
            Some(fault) => Err(usage_failure(fault)),
            None => Ok(load_of_inputs(&inputs, request)),
        }
    }
}

impl PathLists {
    /// Returns the combinations of these lists and those of the load. The last list varies fastest.
    ///
    /// # Errors
    /// Fails if there are more than [`MAX_COMBINATIONS`].
    pub(in crate::commands) fn combinations<'v>(
        &self,
        load: impl Iterator<Item = &'v QuantityValues>,
    ) -> Result<Vec<AxisCombination>> {
        let path = self.path_keys();
        let load: Vec<&Vec<QuantitySetting>> = load.map(|QuantityValues(values)| values).collect();
        let lengths = path
            .iter()
            .map(Vec::len)
            .chain(load.iter().map(|values| values.len()));
        let count = lengths.fold(1_usize, usize::saturating_mul);
        if count > MAX_COMBINATIONS {
            let why = format!(
                "that is {count} combinations, more than {MAX_COMBINATIONS}; take shorter lists"
            );
            return Err(usage_failure(why));
        }
        let mut all = vec![AxisCombination::default()];
        for list in path {
            all = cross_product(&all, &list, |combination, key| {
                combination.path.push(key.clone());
            });
        }
        for list in load {
            all = cross_product(&all, list, |combination, setting| {
                combination.load.push(setting.clone());
            });
        }
        Ok(all)
    }

    /// Returns the keys of a path that each of the lists stands for.
    fn path_keys(&self) -> Vec<Vec<String>> {
        let Self {
            bandwidth,
            rtt,
            queue,
            loss,
            mtu,
        } = self;
        let path = [bandwidth, rtt, loss, mtu].into_iter().flatten();
        let path = path.map(|QuantityValues(values)| values.iter().filter_map(path_key).collect());
        let queues = queue
            .iter()
            .map(|QueueSizes(sizes)| sizes.iter().map(|size| format!("queue={size}")).collect());
        path.chain(queues).collect()
    }
}

/// Returns each of `combinations` with each of `values`.
fn cross_product<V>(
    combinations: &[AxisCombination],
    values: &[V],
    add: impl Fn(&mut AxisCombination, &V),
) -> Vec<AxisCombination> {
    let mut longer = Vec::new();
    for combination in combinations {
        for value in values {
            let mut one = combination.clone();
            add(&mut one, value);
            longer.push(one);
        }
    }
    longer
}

/// Returns a quantity of a path as `--path` has it, without loss of digits.
pub(in crate::commands) fn path_key(setting: &QuantitySetting) -> Option<String> {
    match setting {
        QuantitySetting::Bandwidth(rate) => Some(format!("rate={}bit/s", rate.bps())),
        QuantitySetting::Rtt(rtt) => Some(format!("rtt={}ns", rtt.as_nanos())),
        QuantitySetting::Loss(loss) => Some(format!("loss={}", loss.get())),
        QuantitySetting::Mtu(mtu) => Some(format!("mtu={}", mtu.get())),
        _ => None,
    }
}

/// Reads sizes of a queue: one, or several between commas, or ranges whose ends have the same unit.
fn parse_queues(text: &str) -> Result<QueueSizes, String> {
    let mut sizes = Vec::new();
    for item in text.split(',') {
        match item.split_once("..") {
            Some((low, rest)) => sizes.extend(expand_range(low.trim(), rest.trim())?),
            None => sizes.push(item.trim().to_owned()),
        }
    }
    Ok(QueueSizes(sizes))
}

fn expand_range(low: &str, rest: &str) -> Result<Vec<String>, String> {
    let (high, step) = rest
        .split_once('+')
        .map_or((rest, None), |(high, step)| (high, Some(step)));
    let ([low, high], step) = (
        [split_number(low)?, split_number(high)?],
        step.map(split_number).transpose()?,
    );
    let unit = low.1;
    if high.1 != unit || step.is_some_and(|step| step.1 != unit) {
        return Err(
            "the ends of a range need the same unit; write for example 0.1bdp..2bdp".to_owned(),
        );
    }
    let numbers = numbers_between(low.0, high.0, step.map(|step| step.0))
        .map_err(|error| error.to_string())?;
    Ok(numbers
        .into_iter()
        .map(|number| format!("{number}{unit}"))
        .collect())
}

/// Returns the number before the unit, and the unit.
fn split_number(text: &str) -> Result<(f64, &str), String> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits
        .parse()
        .map_err(|_| format!("\"{text}\" is not a size of a queue; write for example 2bdp"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_lists_and_ranges_of_one_unit() {
        for (text, sizes) in [
            ("1bdp", "1bdp"),
            ("64KiB, 0.5bdp,20ms", "64KiB 0.5bdp 20ms"),
            ("0.1bdp..2bdp", "0.1bdp 0.2bdp 0.5bdp 1bdp 2bdp"),
            (
                "10 packets..30 packets+10packets",
                "10packets 20packets 30packets",
            ),
        ] {
            assert_eq!(parse_queues(text).unwrap().0.join(" "), sizes, "{text}");
        }
        for text in ["1bdp..2ms", "..2bdp", "2bdp..1bdp", "1bdp..2bdp+1"] {
            assert!(parse_queues(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_list_varies_fastest_and_keys_lose_no_digits() {
        let list = |quantity, text| Some(values_parser(quantity)(text).unwrap());
        let lists = PathLists {
            bandwidth: list(Quantity::Bandwidth, "100M"),
            rtt: list(Quantity::Rtt, "1ms,1234567ns"),
            queue: None,
            loss: list(Quantity::Loss, "1e-7"),
            mtu: None,
        };
        let streams = values_parser(Quantity::Streams)("1,4").unwrap();
        let all = lists.combinations([&streams].into_iter()).unwrap();
        let shown: Vec<String> = all
            .iter()
            .map(|one| {
                format!(
                    "{} {}",
                    one.path.join(","),
                    one.to_request(Request::default()).unwrap().streams
                )
            })
            .collect();
        assert_eq!(
            shown[0],
            "rate=100000000bit/s,rtt=1000000ns,loss=0.0000001 1"
        );
        assert_eq!(
            shown[3],
            "rate=100000000bit/s,rtt=1234567ns,loss=0.0000001 4"
        );
        let long = values_parser(Quantity::Streams)("1..10000+1").unwrap();
        assert!(lists.combinations([&streams, &long].into_iter()).is_err());
    }
}
