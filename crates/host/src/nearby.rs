//! Processors near a network device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fullpipe_record::Placement;

/// The kernel's figures of the machine: `/sys`, or a copy of it in a test.
#[derive(Debug, Clone)]
pub struct MachineTree {
    root: PathBuf,
}

impl MachineTree {
    /// The running kernel's.
    pub fn of_this_host() -> Self {
        Self::with_root("/sys")
    }

    /// Another.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The processors of the NUMA node that network device `device` is on, and none, with the
    /// reason, where it makes no difference.
    pub fn device_placement(&self, device: &str) -> Placement {
        let at = self.root.join("class/net").join(device).join("device");
        let node = read_number(&at.join("numa_node"));
        let found = self.processors_near(&at, node);
        let (processors, why_not) = match found {
            Ok(processors) => (processors.into_iter().collect(), None),
            Err(why) => (Vec::new(), Some(why.to_owned())),
        };
        Placement {
            device: Some(device.to_owned()),
            node,
            processors,
            why_not,
        }
    }

    fn processors_near(&self, at: &Path, node: Option<u16>) -> Result<BTreeSet<u16>, &'static str> {
        if !at.exists() {
            return Err("it is no card, but made by the kernel");
        }
        let all = read_processor_list(&self.root.join("devices/system/cpu/online"))
            .ok_or("the kernel does not list the processors")?;
        let node = node.ok_or("the kernel does not say which NUMA node it is on")?;
        let of_node = self
            .root
            .join(format!("devices/system/node/node{node}/cpulist"));
        let near = read_processor_list(&at.join("local_cpulist"))
            .or_else(|| read_processor_list(&of_node));
        let near: BTreeSet<u16> = near
            .unwrap_or_default()
            .intersection(&all)
            .copied()
            .collect();
        match near.len() {
            0 => Err("no processor is near it"),
            near if near == all.len() => Err("all processors are as near"),
            _ => Ok(near),
        }
    }
}

/// A number that is not negative, as −1 is for a device on no node.
fn read_number(file: &Path) -> Option<u16> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Processors as the kernel lists them: `0-3,8-11`.
fn read_processor_list(file: &Path) -> Option<BTreeSet<u16>> {
    parse(std::fs::read_to_string(file).ok()?.trim())
}

fn parse(text: &str) -> Option<BTreeSet<u16>> {
    // Linux has no more (`NR_CPUS`).
    const MAX: u16 = 8_192;
    let mut all = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] =
            [first, last].map(|number| number.parse::<u16>().ok().filter(|number| *number < MAX));
        all.extend(first?..=last?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with processors 0 to 7, of which those of node 1 are 4 to 7, and these files of
    /// `eth0`.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, MachineTree) {
        let root = tempfile::tempdir().unwrap();
        let card = "class/net/eth0/device/";
        let common = [
            ("devices/system/cpu/online", "0-7\n"),
            ("devices/system/node/node1/cpulist", "4-7\n"),
        ];
        let own = files
            .iter()
            .map(|(name, text)| (format!("{card}{name}"), *text));
        for (name, text) in common
            .map(|(name, text)| (name.to_owned(), text))
            .into_iter()
            .chain(own)
        {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let tree = MachineTree::with_root(root.path());
        (root, tree)
    }

    #[test]
    fn the_processors_of_the_cards_node_are_near() {
        let (_root, tree) = machine(&[("numa_node", "1\n"), ("local_cpulist", "4-5,7\n")]);
        let expected = Placement {
            device: Some("eth0".to_owned()),
            node: Some(1),
            processors: vec![4, 5, 7],
            why_not: None,
        };
        assert_eq!(tree.device_placement("eth0"), expected);
        let (_root, tree) = machine(&[("numa_node", "1\n")]);
        assert_eq!(
            tree.device_placement("eth0").processors,
            [4, 5, 6, 7],
            "those of the node, where the card does not say"
        );
    }

    #[test]
    fn where_it_makes_no_difference_the_reason_is_reported() {
        let reason = |files: &[(&str, &str)], device: &str| {
            let (_root, tree) = machine(files);
            let placement = tree.device_placement(device);
            assert_eq!(placement.processors, [] as [u16; 0]);
            placement.why_not.unwrap()
        };
        assert!(reason(&[], "lo").contains("no card"));
        assert!(
            reason(&[("numa_node", "-1\n"), ("local_cpulist", "0-7\n")], "eth0")
                .contains("does not say")
        );
        assert!(
            reason(&[("numa_node", "0\n"), ("local_cpulist", "0-7\n")], "eth0").contains("as near")
        );
        assert!(
            reason(
                &[("numa_node", "1\n"), ("local_cpulist", "12-13\n")],
                "eth0"
            )
            .contains("no processor")
        );
    }

    #[test]
    fn lists_of_processors_are_read_and_nonsense_is_not() {
        assert_eq!(parse("0-2,5,8-9"), Some([0, 1, 2, 5, 8, 9].into()));
        assert_eq!(parse(""), Some([].into()));
        for text in ["a", "1-", "-1", "0-99999999", "0-65535", "1;2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_is_read() {
        assert_eq!(
            MachineTree::of_this_host()
                .device_placement("lo")
                .processors,
            [] as [u16; 0]
        );
    }
}
