use fullpipe_model::{kernel, predict};
use fullpipe_record::{Allowance, Buffer, HostSettings, Limit, Path, PathDirection, Request};
use fullpipe_units::{BitRate, Span};

/// Returns the rate that each buffer setting of a host allows over a path to another with the same
/// settings, as the one predictor computes it.
pub fn buffer_allowances(settings: &HostSettings, path: &Path, streams: u16) -> Vec<Allowance> {
    let rmem = Buffer::Request(kernel::rmem_max(settings));
    let wmem = Buffer::Request(kernel::wmem_max(settings));
    let all = [
        ("net.ipv4.tcp_rmem", Limit::ReceiveWindow, Buffer::Automatic),
        ("net.ipv4.tcp_wmem", Limit::SendBuffer, Buffer::Automatic),
        ("net.core.rmem_max", Limit::ReceiveWindow, rmem),
        ("net.core.wmem_max", Limit::SendBuffer, wmem),
    ];
    let found = all.into_iter().filter_map(|(setting, kind, buffer)| {
        let request = Request {
            streams,
            buffer,
            ..steady_request()
        };
        let prediction = predict(path, settings, settings, &request);
        let ceiling = prediction.find_ceiling(kind)?;
        Some(Allowance {
            setting: setting.to_owned(),
            of: buffer_users(buffer).to_owned(),
            window: ceiling.window,
            rate: ceiling.kernel_model,
            formula: ceiling.formula.clone(),
        })
    });
    found.collect()
}

/// Returns the programs that have such a buffer.
fn buffer_users(buffer: Buffer) -> &'static str {
    match buffer {
        Buffer::Automatic => "programs that leave their buffers to the kernel",
        _ => "programs that ask for as much as they may",
    }
}

/// A path of which only this is known: the same both ways, over Ethernet, with a queue of one BDP.
pub fn usual_path(rtt: Span, bandwidth: BitRate) -> Path {
    let direction = PathDirection {
        queue: Some(bandwidth.bytes_in(rtt)),
        ..PathDirection::of_rate(Some(bandwidth))
    };
    Path::with_symmetric_rtt(&direction, rtt)
}

/// A load that lasts long enough for its beginning not to count.
pub(crate) fn steady_request() -> Request {
    Request {
        duration: Span::from_secs(3600),
        ..Request::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_linux_allows_a_third_of_a_gigabit_over_a_tenth_of_a_second() {
        let path = usual_path(Span::from_millis(100), BitRate::from_mbps(1000));
        let allowed = buffer_allowances(&HostSettings::of_linux_6_18(), &path, 1);
        let rates: Vec<_> = allowed
            .iter()
            .map(|each| (each.setting.as_str(), each.rate.bps() / 1_000_000))
            .collect();
        // The first two as the prediction of the demo has them, the others by SO_RCVBUF and
        // SO_SNDBUF of 4 MiB, doubled.
        assert_eq!(
            rates[..2],
            [("net.ipv4.tcp_rmem", 1664), ("net.ipv4.tcp_wmem", 324)]
        );
        assert_eq!(rates.len(), 4);
        assert!(
            (400..450).contains(&rates[2].1) && (600..680).contains(&rates[3].1),
            "{rates:?}"
        );
    }
}
