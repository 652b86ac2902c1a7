use super::*;

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index / 1000 % 251) as u8).collect()
}

#[test]
fn chunks_in_any_order_give_the_digest_of_the_whole_file() {
    for size in [
        0,
        1,
        1023,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        3 * CHUNK + 5,
        4 * CHUNK,
        7 * CHUNK - 1,
    ] {
        let content = content(size);
        let count = ByteCount::new(size as u64);
        let mut verified = VerifiedChunks::new(count);
        for (index, chunk) in content
            .chunks(CHUNK)
            .enumerate()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            assert_eq!(verified.file_digest(), None, "{size}");
            assert!(verified.insert_chunk(index as u32, chunk_hash(count, index as u32, chunk)));
        }
        assert_eq!(
            verified.file_digest(),
            Some(blake3::hash(&content).into()),
            "{size}"
        );
        assert_eq!(verified.verified_bytes(), count);
    }
}

#[test]
fn blocks_in_any_order_give_the_hash_of_their_chunk() {
    for size in [
        1,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        5 * BLOCK,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK + 3 * BLOCK + 9,
    ] {
        let (content, count) = (content(size), ByteCount::new(size as u64));
        for (chunk, whole) in (0..).zip(content.chunks(CHUNK)) {
            let mut blocks = ChunkBlocks::new(count, chunk);
            assert_eq!(
                u32::from(block_count(whole.len())),
                blocks.missing_blocks().count_ones()
            );
            for (index, block) in (0..)
                .zip(whole.chunks(BLOCK))
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
            {
                let hash = block_hash(count, chunk, index, block);
                assert_eq!(block_length(whole.len(), index), Some(block.len()));
                assert!(
                    blocks.complete_hash().is_none()
                        && blocks.claim_block(index, hash)
                        && !blocks.claim_block(index, [9; 32])
                );
                blocks.record_written(index);
            }
            assert_eq!(
                blocks.complete_hash(),
                Some(chunk_hash(count, chunk, whole)),
                "{size} {chunk}"
            );
        }
    }
}

#[test]
fn a_block_that_is_taken_is_missing_until_it_is_written() {
    let length = 2 * BLOCK + 7;
    let mut blocks = ChunkBlocks::new(ByteCount::new(length as u64), 0);
    assert_eq!(
        (
            blocks.missing_blocks(),
            block_length(length, 2),
            block_length(length, 3)
        ),
        (0b111, Some(7), None)
    );
    assert!(
        blocks.claim_block(1, [1; 32])
            && !blocks.claim_block(3, [1; 32])
            && !blocks.claim_block(255, [1; 32])
    );
    assert_eq!(blocks.missing_blocks(), 0b111);
    blocks.record_written(1);
    assert_eq!(blocks.missing_blocks(), 0b101);
    assert_eq!(
        ChunkBlocks::new(ByteCount::new(CHUNK as u64), 0).missing_blocks(),
        u16::MAX
    );
}

#[test]
fn a_changed_bit_or_another_place_gives_another_hash() {
    let size = ByteCount::new(3 * CHUNK as u64);
    let mut chunk = content(CHUNK);
    let hash = chunk_hash(size, 1, &chunk);
    assert_ne!(hash, chunk_hash(size, 2, &chunk));
    chunk[CHUNK / 2] ^= 1;
    assert_ne!(hash, chunk_hash(size, 1, &chunk));
}

#[test]
fn missing_chunks_are_listed_in_rows() {
    let size = ByteCount::new(5 * CHUNK as u64 + 1);
    let mut verified = VerifiedChunks::new(size);
    let rows = |verified: &VerifiedChunks| {
        verified
            .missing_ranges()
            .iter()
            .map(|row| (row.first, row.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&verified), [(0, 6)]);
    assert!(
        verified.insert_chunk(0, [0; 32])
            && verified.insert_chunk(3, [0; 32])
            && !verified.insert_chunk(3, [0; 32])
    );
    assert!(!verified.insert_chunk(6, [0; 32]));
    assert_eq!(rows(&verified), [(1, 2), (4, 2)]);
    assert!(verified.insert_chunk(1, [1; 32]));
    assert_eq!(
        (verified.hash_at(1), verified.hash_at(2)),
        (Some([1; 32]), None)
    );
    verified.remove_chunk(1);
    assert_eq!(rows(&verified), [(1, 2), (4, 2)]);
    assert_eq!(
        (chunk_length(size, 5), chunk_length(size, 6)),
        (Some(1), None)
    );
    assert!(
        VerifiedChunks::new(ByteCount::ZERO)
            .missing_ranges()
            .is_empty()
    );
}

#[test]
fn sizes_that_lie_allocate_nothing() {
    let verified = VerifiedChunks::new(ByteCount::new(u64::MAX));
    assert_eq!(verified.verified_bytes(), ByteCount::ZERO);
    assert!(!verified.is_complete() && FileChunks::from_size(ByteCount::new(u64::MAX)).is_none());
    let all = FileChunks { first: 0, count: 4 };
    assert!(
        all.contains_all(FileChunks { first: 3, count: 1 })
            && !all.contains_all(FileChunks { first: 3, count: 2 })
    );
    assert!(!all.contains_all(FileChunks {
        first: u32::MAX,
        count: u32::MAX
    }));
    let size = ByteCount::new(2 * CHUNK as u64 + 7);
    assert_eq!(all.byte_count(size), size);
    assert_eq!(FileChunks { first: 2, count: 5 }.byte_count(size).get(), 7);
}
