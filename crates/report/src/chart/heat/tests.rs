use super::*;

fn tile(window: u64, streams: u64, rate: u64) -> HeatTile {
    let window = ByteCount::from_kib(window);
    HeatTile {
        window,
        streams,
        rate: BitRate::from_mbps(rate),
        is_measured: true,
        note: String::new(),
    }
}

fn map() -> HeatMap {
    let tiles = vec![
        tile(256, 1, 50),
        tile(256, 4, 200),
        tile(1024, 1, 198),
        tile(1024, 4, 205),
    ];
    HeatMap::new("Rate", tiles)
        .with_knee(ByteCount::from_kib(256), 4)
        .with_bdp(ByteCount::from_mib(1))
}

#[test]
fn the_edge_divides_the_best_from_the_rest() {
    assert_eq!(map().best_edge(), "M0,1h1M1,1v1");
    assert_eq!(
        map().bdp_crossing(ByteCount::from_kib(512), 0).as_deref(),
        Some(".5,1")
    );
    assert_eq!(map().bdp_crossing(ByteCount::from_mib(64), 0), None);
    let svg = map().to_svg();
    let tiles: Vec<&str> = svg
        .split("class=\"m tile ")
        .skip(1)
        .filter_map(|tile| tile.get(..2))
        .collect();
    assert_eq!(
        tiles,
        ["s8", "s8", "s2", "s8"],
        "from the top, as the rows of the table"
    );
    assert_eq!(
        map().to_figures().rows[2],
        ["1 × 256 KiB", "50 Mbit/s, 24 % of the best"]
    );
    assert!(svg.contains("class=\"ring\""), "{svg}");
}

#[test]
fn the_text_has_the_knee() {
    let expected = "  Mbit/s    1    4\n   1 MiB  198  205\n 256 KiB   50  200*\n* the knee; windows down, \
                        streams across\n";
    assert_eq!(map().to_text(), expected);
}

#[test]
fn one_tile_is_a_map_and_none_is_a_sentence() {
    let one = HeatMap::new("One", vec![tile(64, 1, 0)]).with_bdp(ByteCount::from_mib(1));
    assert!(
        !one.to_svg().contains("NaN") && one.to_svg().contains("class=\"m tile s0\""),
        "{}",
        one.to_svg()
    );
    assert!(HeatMap::new("None", Vec::new()).to_svg().contains(NOTHING));
    let many = HeatMap::new(
        "Many",
        (1..=90).map(|streams| tile(64, streams, streams)).collect(),
    );
    assert!(
        many.to_text()
            .lines()
            .all(|line| line.chars().count() <= 80),
        "{}",
        many.to_text()
    );
}

/// A document of others may have as many windows and streams as it has runs.
#[test]
fn thousands_of_settings_take_no_cubic_time() {
    let map = HeatMap::new(
        "Many",
        (1..=5000).map(|index| tile(index, index, index)).collect(),
    );
    let map = map
        .with_bdp(ByteCount::from_mib(1))
        .with_knee(ByteCount::from_kib(7), 7);
    assert_eq!(map.to_svg().matches("class=\"m tile").count(), 5000);
    assert_eq!(map.to_text().lines().count(), 5003);
    assert_eq!(map.to_figures().rows.len(), 5000);
}
