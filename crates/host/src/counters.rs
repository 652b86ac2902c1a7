//! Counters of the kernel and of drivers, by their text and their names.

/// Returns the packets that the queues of all processors had no room for: the sum of the second
/// field of each line in `/proc/net/softnet_stat`, which is hexadecimal.
pub fn parse_backlog_drops(text: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

/// Returns true if the name of a driver's counter says that it counts packets without a buffer:
/// `rx_out_of_buffer` (mlx5), `rx_no_buffer_count` (e1000e, igb), `rx_no_dma_resources` (ixgbe),
/// `pkts rx OOB` (vmxnet3). Those of single queues would count packets again.
pub fn counts_missing_buffers(name: &str) -> bool {
    const PARTS: [&str; 4] = [
        "out_of_buffer",
        "no_buffer",
        "rx_no_dma_resources",
        "rx OOB",
    ];
    let is_of_a_queue = name.starts_with("rx_queue_") || name.starts_with(' ');
    PARTS.iter().any(|part| name.contains(part)) && !is_of_a_queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_drivers_that_lacked_a_buffer_are_known_by_their_names() {
        let known = [
            "rx_out_of_buffer",
            "rx_no_buffer_count",
            "rx_no_dma_resources",
        ];
        assert!(known.into_iter().all(counts_missing_buffers));
        let others = [
            "rx_packets",
            "rx_queue_0_no_buffer",
            "tx_errors",
            "rx_missed_errors",
        ];
        assert!(!others.into_iter().any(counts_missing_buffers));
    }
}
