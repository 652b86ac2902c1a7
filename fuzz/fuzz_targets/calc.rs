//! Any file is rows or an error in one line; any text is values and what-ifs, or an error in one
//! line.

#![no_main]

use std::num::NonZeroUsize;

use fullpipe_model::calc::{
    CalculationBatch, CombinationAxes, HostPair, READABLE, WhatIfChange, read_values,
};
use fullpipe_record::{HostSettings, Inputs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let hosts = HostPair {
        sender: HostSettings::of_linux_6_18(),
        receiver: HostSettings::of_linux_6_18(),
    };
    let axes = CombinationAxes::default();
    if let Ok(batch) = CalculationBatch::of_file(data, &axes, &hosts) {
        let mut out = Vec::new();
        let ended = batch.run(NonZeroUsize::MIN, &mut out);
        assert!(out.ends_with(b"\n"));
        assert!(ended.is_ok() || ended.unwrap_err().to_string().lines().count() <= 1);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for quantity in READABLE {
        if let Ok(values) = read_values(quantity, text) {
            assert!(!values.is_empty());
            let _ = CombinationAxes::new(Inputs::default(), [values]);
        }
    }
    let _ = WhatIfChange::read(text);
});
