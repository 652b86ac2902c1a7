use super::*;
use crate::engine::{PlannedStream, RunningTransfer, StreamChannel};
use fullpipe_http::{BodyFraming, Ndt7Connection};
use fullpipe_record::Request;
use fullpipe_testkit::within;
use std::net::{Ipv4Addr, TcpListener};

const PROMPT: Duration = Duration::from_secs(20);

fn connected_pair() -> [TcpStream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

fn start(
    socket: TcpStream,
    framing: Framing,
    role: StreamRole,
) -> (Arc<FramedStream>, RunningTransfer) {
    let framed = FramedStream::new(socket, None, Vec::new(), framing);
    let lane = PlannedStream {
        channel: StreamChannel::Framed(Arc::clone(&framed)),
        role,
    };
    let plan = TransferPlan::from_request(&Request::default(), None);
    (
        framed,
        RunningTransfer::start_transfer(vec![lane], plan).unwrap(),
    )
}

/// Returns the bytes that a transfer counted, and the socket if it can be used further.
fn finish(
    (framed, transfer): (Arc<FramedStream>, RunningTransfer),
) -> (ByteCount, Option<TcpStream>) {
    let ended = transfer.finish_transfer();
    assert!(ended.failures.is_empty(), "{:?}", ended.failures);
    let (socket, state) = FramedStream::into_parts(framed).unwrap();
    let bytes = ended.totals.streams[0].bytes;
    (bytes, Some(socket).filter(|_| state.has_ended))
}

#[test]
fn content_arrives_whole_and_its_connection_can_be_used_further() {
    const LENGTH: u64 = 10_000_001;
    let [near, far] = connected_pair();
    let sender = start(near, Framing::Content(LENGTH), StreamRole::Sender);
    let body = BodyDecoder::new(BodyFraming::Length(LENGTH));
    let receiver = start(far, Framing::Body(body), StreamRole::Receiver);
    assert!(within(PROMPT, || sender.1.is_over() && receiver.1.is_over()));
    let (sent, near) = finish(sender);
    let (received, far) = finish(receiver);
    assert_eq!([sent, received].map(ByteCount::get), [LENGTH; 2]);
    let [mut near, mut far] = [near.unwrap(), far.unwrap()];
    far.set_nonblocking(false).unwrap();
    near.write_all(b"next").unwrap();
    let mut next = [0; 4];
    far.read_exact(&mut next).unwrap();
    assert_eq!(&next, b"next");
}

#[test]
fn both_ends_of_a_test_count_the_same_once_they_have_closed() {
    for is_download in [true, false] {
        let [near, far] = connected_pair();
        let server = Ndt7Endpoint::of_server(is_download, Ndt7Connection::default());
        let client = Ndt7Endpoint::of_client(is_download, [1, 2, 3, 4]);
        let [of_server, of_client] = if is_download {
            [StreamRole::Sender, StreamRole::Receiver]
        } else {
            [StreamRole::Receiver, StreamRole::Sender]
        };
        let server = start(near, Framing::Ndt7(Box::new(server)), of_server);
        let client = start(far, Framing::Ndt7(Box::new(client)), of_client);
        std::thread::sleep(Duration::from_millis(300));
        server.1.stop_sending();
        assert!(within(PROMPT, || server.1.is_over() && client.1.is_over()));
        let [(one, _), (other, _)] = [finish(server), finish(client)];
        assert!(one == other && one > ByteCount::ZERO, "{one} and {other}");
    }
}

#[test]
fn a_body_that_breaks_off_is_a_failure() {
    let [near, far] = connected_pair();
    let body = BodyDecoder::new(BodyFraming::Length(100));
    let (framed, receiver) = start(far, Framing::Body(body), StreamRole::Receiver);
    drop(near);
    assert!(within(PROMPT, || receiver.is_over()));
    assert_eq!(receiver.finish_transfer().failures.len(), 1);
    assert!(!framed.has_ended());
}
