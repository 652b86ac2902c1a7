//! The window of the programs' own protocol: a sender that waits for answers, and a receiver that
//! gives them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fullpipe_record::ProgramWindow;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, recv};

use super::plan::TransferPlan;
use super::shared::{POLL_INTERVAL, wait_for_socket};

/// Bytes of an answer: the number of bytes that the receiving program has taken since the start.
const ANSWER: usize = size_of::<u64>();

/// The bytes that a sending program may write: its window beyond what has been answered.
pub(crate) struct SendCredit {
    window: u64,
    pause: Duration,
    written: u64,
    answered: u64,
    /// What has been answered, and when the program goes on, the earliest first.
    answers: VecDeque<(Instant, u64)>,
    /// An answer of which only the first bytes have arrived.
    part: Vec<u8>,
}

impl SendCredit {
    /// Returns the credit of a stream; none where the programs have no window.
    pub(crate) fn from_plan(plan: &TransferPlan) -> Option<Self> {
        plan.app_window.map(|window| Self {
            window: window.bytes.get(),
            pause: plan.pause.into(),
            written: 0,
            answered: 0,
            answers: VecDeque::new(),
            part: Vec::new(),
        })
    }

    /// Waits until bytes may be written, and returns how many; none if `stopped` meanwhile.
    ///
    /// # Errors
    /// Fails if the other end is gone.
    pub(crate) fn wait_for_bytes(
        &mut self,
        socket: &TcpStream,
        stopped: impl Fn() -> bool,
    ) -> io::Result<u64> {
        while !stopped() {
            self.take_answers(socket)?;
            let now = Instant::now();
            while let Some((_, bytes)) = self.answers.pop_front_if(|(at, _)| *at <= now) {
                self.answered = self.answered.max(bytes);
            }
            let allowed = (self.answered + self.window).saturating_sub(self.written);
            if allowed > 0 {
                return Ok(allowed);
            }
            let next = self.answers.front();
            let until = next.map_or(POLL_INTERVAL, |(at, _)| at.saturating_duration_since(now));
            wait_for_socket(socket, PollFlags::IN, until.min(POLL_INTERVAL));
        }
        Ok(0)
    }

    /// Notes that so many have been written.
    pub(crate) fn note_written(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Takes the answers that have arrived. One beyond what was written counts as all of that.
    fn take_answers(&mut self, socket: &TcpStream) -> io::Result<()> {
        let mut arrived = [0; 64 * ANSWER];
        loop {
            let length = match recv(socket, &mut arrived, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ErrorKind::ConnectionReset.into()),
                Ok((length, _)) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.part.extend_from_slice(&arrived[..length]);
            let (whole, rest) = self.part.as_chunks::<ANSWER>();
            let at = Instant::now() + self.pause;
            let taken = whole.iter().map(|answer| u64::from_be_bytes(*answer));
            self.answers
                .extend(taken.map(|bytes| (at, bytes.min(self.written))));
            self.part = rest.to_vec();
        }
    }
}

/// The answers of a receiving program.
pub(crate) struct ReceiveAnswers {
    /// Bytes that are answered together; at once where that is zero.
    request: u64,
    taken: u64,
    answered: u64,
    /// What is left to send of the latest answer.
    rest: Vec<u8>,
}

impl ReceiveAnswers {
    /// Returns the answers to a stream whose programs have this window.
    pub(crate) fn new(window: ProgramWindow) -> Self {
        Self {
            request: window.request.get(),
            taken: 0,
            answered: 0,
            rest: Vec::new(),
        }
    }

    /// Notes that so many bytes were taken, and answers what is complete. What finds no room is sent
    /// the next time; the next read shows whether the other end is gone.
    pub(crate) fn answer(&mut self, mut socket: &TcpStream, bytes: u64) {
        self.taken += bytes;
        let whole = self.taken - self.taken.checked_rem(self.request).unwrap_or(0);
        if self.rest.is_empty() && whole > self.answered {
            self.rest = whole.to_be_bytes().to_vec();
            self.answered = whole;
        }
        if !self.rest.is_empty()
            && let Ok(sent) = socket.write(&self.rest)
        {
            self.rest.drain(..sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use fullpipe_record::{Request, StatedLoad};
    use fullpipe_units::Span;

    use super::*;

    fn plan_with(window: &str, pause: Span) -> TransferPlan {
        let stated = StatedLoad {
            app_window: Some(window.parse().unwrap()),
            pause: Some(pause),
            ..StatedLoad::default()
        };
        TransferPlan::from_request(&Request::default().with_stated(stated), None)
    }

    fn socket_pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    }

    /// Bytes that may be written without a wait for more answers.
    fn allowed_now(credit: &mut SendCredit, socket: &TcpStream) -> u64 {
        let polls = std::cell::Cell::new(0);
        let stopped = || polls.replace(polls.get() + 1) > 2;
        credit.wait_for_bytes(socket, stopped).unwrap()
    }

    #[test]
    fn a_request_is_answered_when_it_is_complete() {
        let [near, far] = socket_pair();
        let mut credit = SendCredit::from_plan(&plan_with("2x1000", Span::ZERO)).unwrap();
        let mut answers = ReceiveAnswers::new("2x1000".parse().unwrap());
        assert_eq!(allowed_now(&mut credit, &near), 2000);
        credit.note_written(2000);
        answers.answer(&far, 999);
        assert_eq!(allowed_now(&mut credit, &near), 0);
        answers.answer(&far, 1);
        assert_eq!(allowed_now(&mut credit, &near), 1000);
        credit.note_written(1000);
        answers.answer(&far, 2000);
        assert_eq!(allowed_now(&mut credit, &near), 2000);
    }

    #[test]
    fn a_pause_follows_an_answer() {
        let [near, far] = socket_pair();
        let pause = Span::from_millis(200);
        let mut credit = SendCredit::from_plan(&plan_with("1x1000", pause)).unwrap();
        credit.note_written(1000);
        let answered = Instant::now();
        ReceiveAnswers::new("1x1000".parse().unwrap()).answer(&far, 1000);
        assert_eq!(credit.wait_for_bytes(&near, || false).unwrap(), 1000);
        assert!(answered.elapsed() >= pause.into());
    }

    #[test]
    fn answers_beyond_what_was_written_grant_no_more_than_the_window() {
        let [near, mut far] = socket_pair();
        let mut credit = SendCredit::from_plan(&plan_with("64KiB", Span::ZERO)).unwrap();
        credit.note_written(1000);
        far.write_all(&u64::MAX.to_be_bytes()).unwrap();
        assert_eq!(credit.wait_for_bytes(&near, || false).unwrap(), 64 << 10);
        drop(far);
        credit.note_written(64 << 10);
        let gone = credit.wait_for_bytes(&near, || false).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_window_without_requests_is_answered_at_once() {
        let [mut near, far] = socket_pair();
        let mut answers = ReceiveAnswers::new("64KiB".parse().unwrap());
        answers.answer(&far, 1);
        let mut answer = [0; ANSWER];
        near.read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_be_bytes(answer), 1);
    }
}
