/// The scenarios that the program brings along: name and text of each file.
pub const fn builtin_scenarios() -> &'static [(&'static str, &'static str)] {
    &[
        ("demo", include_str!("../../../scenarios/demo.toml")),
        (
            "elsen-accelerate",
            include_str!("../../../scenarios/elsen-accelerate.toml"),
        ),
        (
            "elsen-cdn",
            include_str!("../../../scenarios/elsen-cdn.toml"),
        ),
        (
            "elsen-parallel",
            include_str!("../../../scenarios/elsen-parallel.toml"),
        ),
        (
            "elsen-starvation",
            include_str!("../../../scenarios/elsen-starvation.toml"),
        ),
        (
            "elsen-udp",
            include_str!("../../../scenarios/elsen-udp.toml"),
        ),
        (
            "elsen-window-scale",
            include_str!("../../../scenarios/elsen-window-scale.toml"),
        ),
        (
            "elsen-window",
            include_str!("../../../scenarios/elsen-window.toml"),
        ),
        (
            "gordon-bdp",
            include_str!("../../../scenarios/gordon-bdp.toml"),
        ),
        (
            "liu-backup",
            include_str!("../../../scenarios/liu-backup.toml"),
        ),
        (
            "oci-buffers",
            include_str!("../../../scenarios/oci-buffers.toml"),
        ),
        ("oci-mtu", include_str!("../../../scenarios/oci-mtu.toml")),
        (
            "slac-load",
            include_str!("../../../scenarios/slac-load.toml"),
        ),
        (
            "slac-sweep",
            include_str!("../../../scenarios/slac-sweep.toml"),
        ),
    ]
}

/// The scenarios under whose settings programs are compared: name and text of each file, the usual
/// one first.
pub const fn builtin_comparisons() -> &'static [(&'static str, &'static str)] {
    &[
        (
            "oci-applications",
            include_str!("../../../scenarios/comparisons/oci-applications.toml"),
        ),
        (
            "planted-limits",
            include_str!("../../../scenarios/comparisons/planted-limits.toml"),
        ),
    ]
}

/// The grids that the program brings along: name and text of each file, the usual one first.
pub const fn builtin_grids() -> &'static [(&'static str, &'static str)] {
    &[
        (
            "accuracy",
            include_str!("../../../scenarios/grids/accuracy.toml"),
        ),
        (
            "queues",
            include_str!("../../../scenarios/grids/queues.toml"),
        ),
    ]
}
