//! A device between two routers that delays packets and loses some. It shares no code with the link
//! of the lab.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullpipe_sys::{NetNamespace, open_packet_socket, packet_drops};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// Longest that the end is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Frames that are read before those that are due are sent.
const BATCH: usize = 64;

/// virtio's header, Ethernet's, and the longest train of segments.
const MAX_FRAME: usize = 10 + 14 + 65_535;

/// The nice value of a thread that the kernel runs before all ordinary ones.
const FIRST: i32 = -20;

/// A frame that is sent this long after its time is late.
const LATE: Duration = Duration::from_millis(3);

/// Treatment of the packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Treatment {
    /// Time for which each is held.
    pub(crate) delay: Duration,
    /// Probability with which each is lost.
    pub(crate) loss: f64,
}

/// Counts of the packets of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Frames sent.
    pub(crate) sent: u64,
    /// Those that were sent late.
    late: u64,
    /// Frames that found the socket's buffer full.
    dropped: u64,
}

impl Passage {
    /// Returns why a run over the device does not count; `None` if it does.
    pub(crate) fn broken(self) -> Option<String> {
        const MAX_LATE: f64 = 0.01;
        if self.dropped > 0 {
            return Some(format!(
                "the delay box dropped {} packets by itself",
                self.dropped
            ));
        }
        let share = self.late as f64 / self.sent.max(1) as f64;
        (share > MAX_LATE).then(|| {
            format!(
                "the delay box was late with {:.0} % of the packets",
                share * 100.0
            )
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            late: self.late + other.late,
            dropped: self.dropped + other.dropped,
        }
    }
}

/// A running device.
#[derive(Debug)]
pub(crate) struct DelayBox {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Passage>>,
}

impl DelayBox {
    /// Joins the devices `names` of `network`: `treatments` are of packets that arrive at the
    /// first, and at the second.
    ///
    /// # Errors
    /// If a packet socket cannot be opened there.
    pub(crate) fn start(
        network: NetNamespace,
        names: [&'static str; 2],
        treatments: [Treatment; 2],
        seed: u64,
    ) -> io::Result<Self> {
        let open = move || -> io::Result<[[OwnedFd; 2]; 2]> {
            network.enter()?;
            let [first, second] = names.map(open_packet_socket);
            let [first, second] = [first?, second?];
            let (to_first, to_second) = (first.try_clone()?, second.try_clone()?);
            Ok([[first, to_second], [second, to_first]])
        };
        let directions = thread::spawn(open)
            .join()
            .map_err(|_| io::Error::other("the delay box did not start"))??;
        let stop = Arc::<AtomicBool>::default();
        let threads = directions
            .into_iter()
            .zip(treatments)
            .zip(seed..)
            .map(|(([from, to], treatment), seed)| {
                let direction = Direction {
                    from,
                    to,
                    treatment,
                    random: Pcg64Mcg::seed_from_u64(seed),
                };
                let stop = Arc::clone(&stop);
                thread::spawn(move || direction.carry(&stop))
            })
            .collect();
        Ok(Self { stop, threads })
    }

    /// Ends it, and returns what became of the packets.
    pub(crate) fn finish(mut self) -> Passage {
        self.end()
    }

    fn end(&mut self) -> Passage {
        self.stop.store(true, Ordering::Relaxed);
        let passages = self
            .threads
            .drain(..)
            .filter_map(|thread| thread.join().ok());
        passages.fold(Passage::default(), Passage::and)
    }
}

impl Drop for DelayBox {
    fn drop(&mut self) {
        self.end();
    }
}

struct Direction {
    from: OwnedFd,
    to: OwnedFd,
    treatment: Treatment,
    random: Pcg64Mcg,
}

impl Direction {
    fn carry(mut self, stop: &AtomicBool) -> Passage {
        // A device of its own waits for no program. Without the permission it may be late, and
        // counts that.
        let _ = setpriority_process(Some(gettid()), FIRST);
        let (mut waiting, mut passage) = (VecDeque::new(), Passage::default());
        let mut frame = vec![0; MAX_FRAME];
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                let Ok(length) = rustix::io::read(&self.from, &mut frame[..]) else {
                    break;
                };
                if !self.is_lost() {
                    waiting.push_back((
                        Instant::now() + self.treatment.delay,
                        frame[..length].to_vec(),
                    ));
                }
            }
            self.send_due(&mut waiting, &mut passage);
            self.sleep(waiting.front().map(|(due, _)| *due));
        }
        passage.dropped = packet_drops(&self.from).unwrap_or(0);
        passage
    }

    fn is_lost(&mut self) -> bool {
        let drawn = self.random.next_u64() as f64 / u64::MAX as f64;
        drawn < self.treatment.loss
    }

    fn send_due(&self, waiting: &mut VecDeque<(Instant, Vec<u8>)>, passage: &mut Passage) {
        let now = Instant::now();
        while let Some((due, frame)) = waiting.pop_front_if(|(due, _)| *due <= now) {
            // What the router refuses is lost, as on any path.
            let _ = rustix::io::write(&self.to, &frame);
            passage.sent += 1;
            passage.late += u64::from(now - due > LATE);
        }
    }

    /// Waits for the next frame to arrive or to be due.
    fn sleep(&self, due: Option<Instant>) {
        let wait = due.map_or(POLL_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now())
                .min(POLL_INTERVAL)
        });
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let _ = poll(
            &mut [PollFd::new(&self.from.as_fd(), PollFlags::IN)],
            Some(&wait),
        );
    }
}
