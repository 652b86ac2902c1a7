/// The scenarios that the program brings along: name and text of each file.
pub const fn builtin() -> &'static [(&'static str, &'static str)] {
    &[
        ("demo", include_str!("../../../scenarios/demo.toml")),
        ("elsen-window", include_str!("../../../scenarios/elsen-window.toml")),
        ("gordon-bdp", include_str!("../../../scenarios/gordon-bdp.toml")),
    ]
}

/// The grid that the program brings along: its name and its text.
pub const fn builtin_grid() -> (&'static str, &'static str) {
    ("accuracy", include_str!("../../../scenarios/grids/accuracy.toml"))
}
