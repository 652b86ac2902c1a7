//! Remedies of a host's devices and of its whole namespace.

use fullpipe_record::{At, Change, DeviceReport, RESTORABLE_QDISCS, Remedy, Scope};
use fullpipe_units::SegCount;

use crate::remedies::Advice;
use crate::thresholds::{NEXT_SIZE, USUAL_QUEUE};

impl Advice<'_> {
    /// The kernel's own queueing discipline in place of one that somebody chose; `None` where that has others within it, or
    /// could not be put back.
    pub(crate) fn default_discipline(&self) -> Option<Remedy> {
        let device = self.own_device()?;
        let [chosen] = device.qdiscs.as_slice() else { return None };
        let (name, kind) = (&device.name, &chosen.kind);
        let rate = chosen.rate.map_or_else(String::new, |rate| format!(" with a rate of {rate}"));
        let why = format!(
            "Somebody gave {name} the queueing discipline {kind}{rate}; without it the kernel's own takes its place. The risk: it \
             may be there to leave others their part, or to keep a queue from growing elsewhere."
        );
        let change = Change::Qdisc { device: name.clone(), kind: Change::DEFAULT_QDISC.to_owned() };
        let at = At::Sender;
        RESTORABLE_QDISCS
            .contains(&kind.as_str())
            .then(|| self.remedy("default-queueing-discipline", Scope::Host, at, vec![change], why))
    }

    /// Room for more packets, where the device's own length is what counts.
    pub(crate) fn longer_queue(&self) -> Option<Remedy> {
        /// Those that have no limit but the device's.
        const WITHOUT_A_LIMIT: [&str; 2] = ["mq", "pfifo_fast"];
        let device = self.own_device()?;
        let has_no_limit = |kind: &str| WITHOUT_A_LIMIT.contains(&kind);
        let counts = !device.qdiscs.is_empty() && device.qdiscs.iter().all(|qdisc| has_no_limit(&qdisc.kind));
        let (name, length) = (&device.name, device.queue_length.filter(|_| counts)?);
        let packets = SegCount::new((length * NEXT_SIZE).get().max(USUAL_QUEUE));
        let why = format!(
            "{name} has room for {} packets and drops what comes on top (txqueuelen): with room for {} more of a burst waits, \
             and longer.",
            length.get(),
            packets.get()
        );
        let change = Change::QueueLength { device: name.clone(), packets };
        Some(self.remedy("longer-queue", Scope::Host, At::Sender, vec![change], why))
    }

    /// The sender finds a size that passes by itself.
    pub(crate) fn probe_the_mtu(&self) -> Remedy {
        let changes = vec![Change::Sysctl { name: "net.ipv4.tcp_mtu_probing".to_owned(), value: "1".to_owned() }];
        let why = "A narrow link swallows full packets and its answer does not arrive: with probing the sender tries smaller \
                   ones after some timeouts, and keeps to a size that passes.";
        let predicted = self.outlook.as_ref().and_then(|outlook| outlook.forecast_of_probing(&changes));
        let remedy = self.remedy("probe-the-mtu", Scope::Namespace, At::Sender, changes, why.to_owned());
        Remedy { predicted, ..remedy }
    }

    fn own_device(&self) -> Option<&DeviceReport> {
        self.evidence.sender_machine.device.as_ref()
    }
}
