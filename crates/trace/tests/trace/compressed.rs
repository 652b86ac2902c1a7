use std::io::{Read as _, Write};

use fullpipe_trace::{CaptureError, Compression};

use crate::write::{Order, packets, pcap, read, sentence, try_read};

const ALL: [Compression; 4] = [
    Compression::Gzip,
    Compression::Zstd,
    Compression::Lz4,
    Compression::Xz,
];

pub(crate) fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        }
        Compression::Zstd => zstd::stream::encode_all(bytes, 1).unwrap(),
        Compression::Lz4 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(bytes).unwrap();
            lz4.finish().unwrap()
        }
        Compression::Xz => {
            let mut xz =
                lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0))
                    .unwrap();
            xz.write_all(bytes).unwrap();
            xz.finish().unwrap()
        }
    }
}

#[test]
fn compressed_files_hold_what_plain_ones_do() {
    let written = packets(900);
    let plain = pcap(Order::Little, 0xA1B2_3C4D, &written);
    for compression in ALL {
        let read = read(compress(compression, &plain));
        assert!(read.packets == written, "{compression}");
        assert_eq!(
            (read.notes.compression, read.notes.cut_end),
            (Some(compression), false)
        );
        assert_eq!(read.notes.format, "pcap, nanoseconds");
    }
}

/// As logs are rotated: each part compressed for itself, one behind another.
#[test]
fn members_that_follow_each_other_are_one_file() {
    let written = packets(300);
    let plain = pcap(Order::Little, 0xA1B2_3C4D, &written);
    for compression in ALL {
        let parts: Vec<u8> = plain
            .chunks(10_001)
            .flat_map(|part| compress(compression, part))
            .collect();
        let read = read(parts);
        assert!(
            read.packets == written && !read.notes.cut_end,
            "{compression}"
        );
    }
}

/// As `pzstd` writes them: before each part, a frame without content that has its length.
#[test]
fn frames_without_content_are_passed_over() {
    let written = packets(300);
    let plain = pcap(Order::Little, 0xA1B2_3C4D, &written);
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0][..], &[9; 4]].concat();
    let zstd = |part: &[u8]| [&skippable[..], &compress(Compression::Zstd, part)].concat();
    let parts: Vec<u8> = plain.chunks(10_001).flat_map(zstd).collect();
    let lz4 = [
        &skippable[..],
        &skippable,
        &compress(Compression::Lz4, &plain),
    ]
    .concat();
    for file in [parts, lz4] {
        let read = read(file);
        assert!(
            read.packets == written && !read.notes.cut_end,
            "{:?}",
            read.notes
        );
    }
    assert!(
        sentence(&try_read(skippable).unwrap_err()).ends_with("no packet capture: it is empty")
    );
    let endless = [0x5F, 0x2A, 0x4D, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0];
    assert!(sentence(&try_read(endless.to_vec()).unwrap_err()).contains("no packet capture"));
}

#[test]
fn zeros_behind_a_file_of_gzip_fill_its_last_block() {
    let written = packets(300);
    let whole = compress(
        Compression::Gzip,
        &pcap(Order::Little, 0xA1B2_3C4D, &written),
    );
    let read = read([&whole[..], &vec![0; 700_000]].concat());
    assert!(read.packets == written && !read.notes.cut_end);
    let garbage = try_read([&whole[..], &[0; 9], b"not of gzip"].concat()).unwrap();
    assert!(
        garbage.packets == written && garbage.error.is_some(),
        "anything else is damage"
    );
}

#[test]
fn a_compressed_file_that_is_cut_gives_what_is_before() {
    let written = packets(200);
    let plain = pcap(Order::Little, 0xA1B2_3C4D, &written);
    for compression in ALL {
        let whole = compress(compression, &plain);
        for cut in
            (0..whole.len()).filter(|cut| *cut < 40 || cut % 97 == 0 || *cut + 40 > whole.len())
        {
            let Ok(read) = try_read(whole[..cut].to_vec()) else {
                continue;
            };
            assert!(
                read.error.is_none(),
                "{compression} cut at {cut} of {}: {:?}",
                whole.len(),
                read.error
            );
            // Without its last mark, a file of LZ4 still holds everything.
            let is_whole = compression == Compression::Lz4 && read.packets == written;
            assert!(
                read.notes.cut_end || is_whole,
                "{compression} cut at {cut} of {}",
                whole.len()
            );
            assert!(written.starts_with(&read.packets));
        }
    }
}

#[test]
fn damaged_data_is_an_error_and_never_a_panic() {
    let written = packets(120);
    let plain = pcap(Order::Little, 0xA1B2_3C4D, &written);
    for compression in ALL {
        let whole = compress(compression, &plain);
        let mut errors = 0;
        for at in (6..whole.len()).step_by(whole.len() / 60) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x5A;
            match try_read(damaged) {
                Err(CaptureError::Decompression { .. }) => errors += 1,
                Ok(read) => errors += u32::from(read.error.is_some()),
                Err(_) => {}
            }
        }
        assert!(errors > 20, "{compression}: {errors}");
    }
    let error = try_read([&[0x28, 0xB5, 0x2F, 0xFD][..], &[0xFF; 40]].concat()).unwrap_err();
    assert!(
        sentence(&error).starts_with("a.pcap cannot be decompressed (zstd): "),
        "{}",
        sentence(&error)
    );
}

#[test]
fn a_file_that_is_compressed_twice_or_no_capture_inside_is_refused() {
    let twice = compress(
        Compression::Zstd,
        &compress(
            Compression::Gzip,
            &pcap(Order::Big, 0xA1B2_C3D4, &packets(9)),
        ),
    );
    assert!(sentence(&try_read(twice).unwrap_err()).contains("compressed twice"));
    let text = compress(
        Compression::Gzip,
        b"not a capture, but a log of something\n",
    );
    assert_eq!(
        sentence(&try_read(text).unwrap_err()),
        "a.pcap is no packet capture: it is text"
    );
}

#[test]
fn a_bomb_stops_and_an_honest_file_does_not() {
    let record = |captured: u32| {
        [
            &[0; 8][..],
            &captured.to_le_bytes(),
            &captured.to_le_bytes(),
        ]
        .concat()
    };
    let zeros = [record(262_144), vec![0; 262_144]].concat();
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder
        .write_all(&pcap(Order::Little, 0xA1B2_C3D4, &[]))
        .unwrap();
    for _ in 0..1200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let read = try_read(bomb).unwrap();
    assert!(
        matches!(read.error, Some(CaptureError::Bomb { .. })),
        "{:?}",
        read.error
    );
    assert!(
        (200..=300).contains(&read.packets.len()),
        "{} packets of 256 KiB",
        read.packets.len()
    );
}

/// Whoever stops reading leaves no thread that waits for him.
#[test]
fn the_decompressor_ends_with_its_reader() {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = compress(
        Compression::Gzip,
        &pcap(Order::Little, 0xA1B2_3C4D, &packets(3000)),
    );
    let file =
        fullpipe_trace::PacketFile::new(std::io::Cursor::new(file).chain(Closes(writer)), "a")
            .unwrap();
    drop(file);
    // The pipe ends once the thread has dropped the input.
    assert_eq!({ reader }.read(&mut [0]).unwrap(), 0);
}

/// The end of an input, which holds a pipe open until it is dropped.
struct Closes(#[expect(dead_code, reason = "it is held")] std::io::PipeWriter);

impl std::io::Read for Closes {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }
}
