use super::*;

fn queue(streams: usize) -> CopyQueue {
    let queue = CopyQueue::default();
    queue.set_streams(streams, streams);
    queue
}

fn job(chunk: u32) -> NextWork {
    NextWork::Send(ChunkJob { file: 1, chunk })
}

fn block(index: u8, reports: bool) -> BlockJob {
    BlockJob { index, reports }
}

fn help(chunk: u32, index: u8) -> NextWork {
    NextWork::Help(
        ChunkJob { file: 1, chunk },
        BlockJob {
            index,
            reports: true,
        },
    )
}

/// Lets all blocks that are on their way have been taken so much earlier.
fn age(queue: &CopyQueue, time: Duration) {
    let mut state = lock(&queue.state);
    state.none_overdue_until = None;
    let blocks = state
        .sent
        .values_mut()
        .flat_map(|sent| &mut sent.blocks)
        .flatten();
    blocks.for_each(|block| block.at -= time);
}

#[test]
fn a_connection_that_finds_no_chunk_takes_the_last_blocks_of_others() {
    let (queue, one) = (queue(3), ChunkJob { file: 1, chunk: 0 });
    queue.add_chunks(1, FileChunks { first: 0, count: 4 });
    assert_eq!(queue.next_work(0, false), job(0));
    assert_eq!(
        queue.next_block(0, one, 3),
        Some(block(0, true)),
        "no more are wanted than there are connections"
    );
    queue.add_chunks(1, FileChunks { first: 4, count: 1 });
    assert_eq!(queue.next_block(0, one, 3), Some(block(1, false)));
    for chunk in 1..5 {
        assert_eq!(queue.next_work(1, false), job(chunk));
        queue.record_arrival(ChunkJob { file: 1, chunk });
    }
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(2, false)),
        (help(0, 2), NextWork::Nothing)
    );
    assert_eq!(queue.next_block(0, one, 3), None);
    // What was taken of a chunk that is sent anew is not kept.
    queue.lose_connection(1);
    assert_eq!(
        (
            queue.next_work(2, false),
            queue.next_block(0, one, 3),
            queue.next_block(2, one, 3)
        ),
        (job(0), Some(block(0, true)), Some(block(1, true)))
    );
    queue.record_arrival(one);
    assert_eq!(
        (queue.next_block(0, one, 3), queue.next_work(0, false)),
        (None, NextWork::Nothing)
    );
}

#[test]
fn what_is_overdue_is_sent_once_more_by_another_connection() {
    let (queue, one) = (queue(2), ChunkJob { file: 1, chunk: 0 });
    queue.add_chunks(1, FileChunks { first: 0, count: 1 });
    assert_eq!(queue.next_work(0, false), job(0));
    for index in 0..4 {
        assert_eq!(queue.next_block(0, one, 4), Some(block(index, true)));
    }
    age(&queue, Duration::from_secs(1));
    assert_eq!(
        queue.next_work(1, false),
        NextWork::Nothing,
        "nobody knows yet how long a block takes"
    );
    queue.got_blocks(one, 0b1110);
    age(&queue, Duration::from_millis(900));
    assert_eq!(
        queue.next_work(1, false),
        NextWork::Nothing,
        "not twice as long as the first"
    );
    age(&queue, Duration::from_millis(200));
    assert_eq!(
        (queue.next_work(0, false), queue.next_work(1, false)),
        (NextWork::Nothing, help(0, 1))
    );
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(1, false)),
        (help(0, 2), help(0, 3))
    );
    age(&queue, Duration::from_secs(9));
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(0, false)),
        (NextWork::Nothing, NextWork::Nothing)
    );
    assert_eq!(queue.repeated(), 3);
    // The connection that has taken all of them breaks.
    queue.lose_connection(0);
    assert_eq!(queue.next_work(1, false), job(0));
}

#[test]
fn streams_of_one_connection_do_not_repeat_what_the_others_have() {
    let (queue, one) = (queue(0), ChunkJob { file: 1, chunk: 0 });
    queue.stand_by(2);
    assert!(queue.change_over());
    queue.add_chunks(1, FileChunks { first: 0, count: 1 });
    assert_eq!(
        (queue.next_work(0, false), queue.next_block(0, one, 3)),
        (job(0), Some(block(0, true)))
    );
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(1, false)),
        (help(0, 2), help(0, 1))
    );
    queue.got_blocks(one, 0b110);
    age(&queue, Duration::from_secs(9));
    assert_eq!(
        (queue.next_work(0, false), queue.next_work(1, false)),
        (NextWork::Nothing, NextWork::Nothing)
    );
}

#[test]
fn what_a_broken_connection_has_sent_is_sent_again_but_for_what_arrived() {
    let queue = queue(2);
    assert!(queue.add_chunks(1, FileChunks { first: 5, count: 3 }));
    assert_eq!(queue.next_work(0, false), job(5));
    assert_eq!(queue.next_work(1, false), job(6));
    assert_eq!(queue.next_work(1, false), job(7));
    assert!(queue.record_arrival(ChunkJob { file: 1, chunk: 6 }));
    assert_eq!(queue.next_work(SSH, false), NextWork::Nothing);
    assert!(queue.lose_connection(1) && !queue.lose_connection(1));
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(0, false)),
        (NextWork::End, job(7))
    );
    queue.lose_connection(0);
    assert_eq!(queue.next_work(SSH, false), job(5));
    assert_eq!(queue.next_work(SSH, false), job(7));
    queue.end_work();
    assert_eq!(queue.next_work(SSH, true), NextWork::End);
}

/// Chunks that arrived on a lost connection were sent once more, and were not counted.
#[test]
fn what_arrives_on_a_connection_that_was_given_up_is_not_sent_again() {
    for is_lost in [true, false] {
        let queue = queue(1);
        queue.stand_by(1);
        queue.add_chunks(1, FileChunks { first: 0, count: 4 });
        for chunk in 0..3 {
            assert_eq!(queue.next_work(0, false), job(chunk));
        }
        assert!(if is_lost {
            queue.lose_connection(0)
        } else {
            queue.change_over()
        });
        assert!(
            queue.record_arrival(ChunkJob { file: 1, chunk: 1 })
                && !queue.record_arrival(ChunkJob { file: 1, chunk: 1 })
        );
        assert_eq!(
            (
                queue.next_work(1, false),
                queue.next_work(1, false),
                queue.next_work(1, false)
            ),
            (job(0), job(2), job(3))
        );
    }
}

#[test]
fn a_chunk_that_arrived_wrong_is_sent_again_and_a_file_that_failed_is_not() {
    let queue = queue(1);
    queue.add_chunks(1, FileChunks { first: 0, count: 2 });
    assert_eq!(queue.next_work(0, false), job(0));
    queue.add_chunks(1, FileChunks { first: 0, count: 1 });
    assert!(!queue.record_arrival(ChunkJob { file: 1, chunk: 0 }));
    assert_eq!(
        (queue.next_work(0, false), queue.next_work(0, false)),
        (job(1), job(0))
    );
    queue.add_chunks(1, FileChunks { first: 4, count: 1 });
    queue.forget_file(1);
    assert_eq!(queue.next_work(0, false), NextWork::Nothing);
}

/// Forgetting files took time by the square of their number: hours for a million.
#[test]
fn many_files_that_fail_are_forgotten_quickly() {
    const FILES: u32 = 100_000;
    let queue = queue(2);
    let want = |file| queue.add_chunks(file, FileChunks { first: 0, count: 2 });
    assert!((0..=FILES).all(want));
    let first = |file| NextWork::Send(ChunkJob { file, chunk: 0 });
    // Those at the front are on their way.
    for file in 0..FILES / 2 {
        assert_eq!(
            (queue.next_work(0, false), queue.next_work(0, false)).0,
            first(file)
        );
    }
    let began = Instant::now();
    (0..FILES).rev().for_each(|file| queue.forget_file(file));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // One may be wanted again: its disk has changed a chunk, which the other end did not know
    // before.
    assert!(want(3));
    assert_eq!(
        (queue.next_work(1, false), queue.next_work(1, false)).0,
        first(FILES)
    );
    assert_eq!(queue.next_work(1, false), first(3));
    queue.forget_file(FILES);
    queue.forget_file(3);
    queue.lose_connection(1);
    assert_eq!(queue.next_work(0, false), NextWork::Nothing);
}

#[test]
fn connections_beyond_those_that_may_send_rest() {
    let queue = queue(3);
    queue.add_chunks(1, FileChunks { first: 0, count: 9 });
    queue.set_active(1);
    assert_eq!(
        (queue.next_work(2, false), queue.next_work(0, false)),
        (NextWork::Nothing, job(0))
    );
    queue.lose_connection(0);
    assert_eq!(queue.next_work(1, false), job(0));
    assert_eq!(queue.active_connections(), (1, 2));
}

#[test]
fn connections_that_stand_by_carry_data_from_the_change_on_and_when_the_others_are_lost() {
    for is_lost in [false, true] {
        let queue = queue(1);
        queue.stand_by(2);
        queue.add_chunks(1, FileChunks { first: 0, count: 9 });
        assert_eq!(
            (queue.next_work(1, false), queue.next_work(0, false)),
            (NextWork::Nothing, job(0))
        );
        if is_lost {
            assert!(queue.lose_connection(0));
            assert_eq!(queue.next_work(2, false), job(0));
        } else {
            assert!(queue.change_over() && !queue.change_over());
            // What is on its way on the others, too: they may be slow.
            assert_eq!(
                (queue.next_work(0, false), queue.next_work(1, false)),
                (NextWork::Nothing, job(0))
            );
            assert_eq!(queue.next_work(2, false), job(1));
            // And back again, if they break.
            queue.lose_connection(1);
            queue.lose_connection(2);
            assert_eq!(
                (queue.next_work(0, false), queue.next_work(0, false)),
                (job(0), job(1))
            );
        }
        assert_eq!(queue.next_work(SSH, false), NextWork::Nothing);
    }
}
