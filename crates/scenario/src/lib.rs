//! Scenario files: what to run over which path between which hosts, and what must come out.
//!
//! [`Scenario::parse`] turns TOML text into a checked [`Scenario`], or into one sentence with file, line and column.
//! [`parse_path_flag`] and [`parse_host_flag`] read the same keys from the command line: each key is defined once, so
//! files and flags cannot drift apart. [`builtin`] has the scenarios that the program brings along.
//!
//! ```toml
//! name = "elsen-window"
//! title = "One stream and a fixed window on 100 Mbit/s × 173 ms"
//! source = "Elsen 2013"           # optional
//!
//! [path]                          # both directions
//! rate = "100Mbit/s"              # none: packets are sent at once
//! rtt = "173ms"                   # half each way; or a delay in [path.forward] and in [path.reverse]
//! queue = "1bdp"                  # or "64KiB", "100packets", "20ms"; 1bdp if not set
//! loss = "0%"                     # or "gilbert-elliott 0.1% 20%" (p, r), or "packets 3 17", counted from 1, or
//!                                 # "data 3 17", which counts the data packets of each connection
//! mtu = 1500
//! framing = "ip"                  # or "ethernet", if not set
//! seed = 1
//!                                 # what follows is not done if not set; parts are in this order
//! jitter = "normal 2ms 1ms"       # uniform MAX, normal MEAN DEVIATION, exponential MEAN, pareto MIN SHAPE, listed …
//! jitter_order = "kept"           # or "free": a packet may pass another
//! reorder = "0.1% 5ms"            # a share of the packets held back
//! duplicate = "0.1%"
//! corrupt = "1e-5"
//! policer = "50Mbit/s 64KiB"      # rate, burst
//! narrow = "1400"                 # MTU of a link on the way; "1400 swallowed" is a black hole
//! edits = "strip-sack clamp-mss=1200"  # also strip-window-scale, window-scale=2, strip-timestamps, clamp-window=32KiB
//!                                 # and router=198.18.1.1, which counts hops
//! aqm = "fq-codel"                # or "codel 5ms 100ms ecn", "threshold 30KiB"; drop-tail if not set
//! changes = "10s rate=50M delay=20ms; 20s loss=1%"  # when, counted from the beginning of the path, and what
//! trace = "mahimahi lte.up"       # when 1504 B may leave, instead of the rate; or "rates FILE" of lines "1.5s 20M"
//! [path.reverse]                  # overrides single keys of the way of the acknowledgements; a rate, a trace, too
//! queue = "100packets"
//!
//! [near]                          # the stretch between the sender and a relay; [far] from the other relay to the
//! rate = "1Gbit/s"                # receiver; [path] is then what lies between the relays
//! rtt = "0.2ms"
//!
//! [sender]                        # settings of the host that sends; [receiver] likewise
//! tcp_wmem = "64MiB"              # the third value, the maximum
//!
//! [[step]]
//! name = "64 KiB"
//! window = "64KiB"                # as advertised; or buffer = "…", as a program requests it; or neither
//! streams = 1
//! congestion = "cubic"
//! duration = "10s"
//! omit = "0s"                     # at the start, not counted
//! direction = "upload"            # "download": the receiver asks for the data; it flows forward all the same
//! published = "2.77Mbit/s"        # what the source measured; or { rate = …, loss = …, jitter = …, reordered = … }
//! path = { rtt = "4ms" }          # where it differs from [path]; sender = { … } and receiver = { … } likewise
//! relays = true                   # through `fullpipe relay` on both relays, in place of packets that are forwarded
//! kernel_model = { within = "5%" }     # measured ÷ predicted: within, at_least or at_most
//! textbook = { at_least = "85%" }
//! capacity = { at_least = "90%" } # measured ÷ payload that the link carries
//! verdict = "receive-window"      # what must limit it: a kind, or kind/cause
//!
//! [[step]]
//! name = "datagrams"
//! transport = "udp"
//! rate = "110Mbit/s"              # that each stream offers; or ramp = { from = "10%", to = "110%", loads = 11 }
//! length = 1470                   # payload of each; what the path takes if not set
//! loss = { within = "0.5%" }      # points around what the rate really offered and the link's busy time predict
//! reordered = { within = "5%" }   # datagrams out of order ÷ packets that the link let others pass
//! fills = { within = "2%" }       # of the link, together with the cross traffic
//!
//! [[step.cross_traffic]]          # runs during that step, and ends with it; streams, window … as a step has them
//! transport = "udp"
//! rate = "100Mbit/s..250Mbit/s"   # a range: each phase draws from it
//! on = "1s"                       # in turn with off; on all the time if neither is set
//! off = "1s"
//! before = "1s"                   # the step's load; or after = "1s"
//!
//! [[bound]]                       # between steps
//! ratio = ["128 KiB", "64 KiB"]   # rate of the first ÷ rate of the second
//! expect = 2.0                    # or "kernel_model": the ratio of the predictions; 1 if not set
//! within = "5%"                   # or at_least, or at_most
//! ```

mod bound;
mod builtin;
mod cross_traffic;
mod error;
mod flag;
mod grid;
mod host;
mod key;
mod path;
mod scenario;
mod section;
mod step;
mod trace;

pub use bound::{Bound, Expected, ExpectedVerdict, RatioBound, StepBounds};
pub use builtin::{builtin, builtin_comparisons, builtin_grids};
pub use cross_traffic::{CrossTraffic, Starts};
pub use error::{FlagError, Place, ScenarioError};
pub use flag::{parse_host_flag, parse_path_flag, parse_path_flag_with};
pub use grid::{Grid, GridBounds};
pub use path::{PathSpec, ReadFile, Stretches};
pub use scenario::{Control, Scenario};
pub use step::{Step, StepRamp};
