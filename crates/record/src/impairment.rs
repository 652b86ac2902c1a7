//! Impairments of a path, one entry each: keys, text, and the name in messages.

use crate::effects_text::{
    compact_text, joined_text, parse_edits, parse_probability, parse_reorders, parse_steps,
};
use crate::prelude::*;
use crate::{Distribution, Effects, Jitter, Queueing};

/// Something that an emulated path does to packets: a field of [`Effects`] and its text forms.
///
/// Scenario keys, the keys of `--path`, the refusals of other backends and the description of a
/// path all come from [`IMPAIRMENTS`].
#[derive(Debug)]
pub struct PathImpairment {
    /// The field of [`Effects`], as JSON has it.
    pub field: &'static str,
    /// Name of the impairment in the plural, for messages: "policers".
    pub plural: &'static str,
    /// The keys that set it; none where it follows from the queue, the loss or the trace of the
    /// path.
    pub keys: &'static [ImpairmentKey],
    /// Returns the value as its keys have it, or `None` where the path does not do it.
    text: fn(&Effects) -> Option<String>,
}

/// A key of a scenario's `[path]` and of `--path`.
#[derive(Debug)]
pub struct ImpairmentKey {
    /// Name of the key.
    pub name: &'static str,
    /// Sets the value that is given as text; fails with a sentence without the key's name.
    pub set: fn(&mut Effects, &str) -> Result<(), String>,
}

impl PathImpairment {
    /// Returns true if the path does this.
    pub fn is_in(&self, effects: &Effects) -> bool {
        (self.text)(effects).is_some()
    }
}

impl Effects {
    /// Returns the impairments of the path, each as text: `policer=20Mbit/s 64KiB`.
    pub fn effect_texts(&self) -> Vec<String> {
        IMPAIRMENTS
            .iter()
            .filter_map(|impairment| (impairment.text)(self))
            .collect()
    }
}

/// Every field of [`Effects`].
pub const IMPAIRMENTS: &[PathImpairment] = &[
    PathImpairment {
        field: "losses",
        plural: "losses in bursts or of listed packets",
        keys: &[],
        text: |effects| {
            effects
                .losses
                .as_ref()
                .map(|losses| format!("loss={losses}"))
        },
    },
    PathImpairment {
        field: "queue_packets",
        plural: "queues in packets",
        keys: &[],
        text: |effects| {
            effects
                .queue_packets
                .map(|packets| format!("queue={packets}packets"))
        },
    },
    PathImpairment {
        field: "queueing",
        plural: "managed queues",
        keys: &[ImpairmentKey {
            name: "aqm",
            set: |effects, text| set_field(&mut effects.queueing, text.parse()),
        }],
        text: |effects| {
            (effects.queueing != Queueing::DropTail).then(|| format!("aqm={}", effects.queueing))
        },
    },
    PathImpairment {
        field: "policer",
        plural: "policers",
        keys: &[ImpairmentKey {
            name: "policer",
            set: |effects, text| set_field(&mut effects.policer, text.parse().map(Some)),
        }],
        text: |effects| effects.policer.map(|policer| format!("policer={policer}")),
    },
    PathImpairment {
        field: "narrow",
        plural: "narrow links",
        keys: &[ImpairmentKey {
            name: "narrow",
            set: |effects, text| set_field(&mut effects.narrow, text.parse().map(Some)),
        }],
        text: |effects| effects.narrow.map(|narrow| format!("narrow={narrow}")),
    },
    PathImpairment {
        field: "edits",
        plural: "middleboxes",
        keys: &[ImpairmentKey {
            name: "edits",
            set: |effects, text| set_field(&mut effects.edits, parse_edits(text)),
        }],
        text: |effects| {
            (!effects.edits.is_empty())
                .then(|| format!("edits={}", joined_text(&effects.edits, " ")))
        },
    },
    PathImpairment {
        field: "duplicated",
        plural: "duplicates",
        keys: &[ImpairmentKey {
            name: "duplicate",
            set: |effects, text| set_field(&mut effects.duplicated, parse_probability(text)),
        }],
        text: |effects| share_text("duplicate", effects.duplicated),
    },
    PathImpairment {
        field: "corrupted",
        plural: "wrong bits",
        keys: &[ImpairmentKey {
            name: "corrupt",
            set: |effects, text| set_field(&mut effects.corrupted, parse_probability(text)),
        }],
        text: |effects| share_text("corrupt", effects.corrupted),
    },
    PathImpairment {
        field: "reordering",
        plural: "reordering",
        keys: &[ImpairmentKey {
            name: "reorder",
            set: |effects, text| set_field(&mut effects.reordering, text.parse().map(Some)),
        }],
        text: |effects| {
            effects
                .reordering
                .map(|reordering| format!("reorder={reordering}"))
        },
    },
    PathImpairment {
        field: "jitter",
        plural: "jitter",
        keys: &[
            ImpairmentKey {
                name: "jitter",
                set: |effects, text| set_field(&mut jitter_mut(effects).distribution, text.parse()),
            },
            ImpairmentKey {
                name: "jitter_order",
                set: |effects, text| {
                    set_field(&mut jitter_mut(effects).reorders, parse_reorders(text))
                },
            },
        ],
        text: |effects| effects.jitter.as_ref().map(jitter_text),
    },
    PathImpairment {
        field: "steps",
        plural: "changes over time",
        keys: &[ImpairmentKey {
            name: "changes",
            set: |effects, text| set_field(&mut effects.steps, parse_steps(text)),
        }],
        text: |effects| {
            (!effects.steps.is_empty())
                .then(|| format!("changes={}", joined_text(&effects.steps, "; ")))
        },
    },
    PathImpairment {
        field: "opportunities",
        plural: "traces",
        keys: &[],
        text: |effects| {
            effects
                .opportunities
                .as_ref()
                .map(|trace| format!("trace={trace}"))
        },
    },
];

fn set_field<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *field = value)
}

fn share_text(key: &str, share: Ratio) -> Option<String> {
    (share > Ratio::ZERO).then(|| format!("{key}={}", compact_text(share)))
}

/// Returns the jitter of the path, which is none until one of its keys sets it.
fn jitter_mut(effects: &mut Effects) -> &mut Jitter {
    effects.jitter.get_or_insert(Jitter {
        distribution: Distribution::Uniform(Span::ZERO),
        reorders: false,
    })
}

fn jitter_text(jitter: &Jitter) -> String {
    let order = if jitter.reorders { "free" } else { "kept" };
    format!("jitter={},jitter_order={order}", jitter.distribution)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Sets what a text says, as `--path` does.
    fn read(text: &str) -> Effects {
        let mut effects = Effects::default();
        for (name, value) in text.split(',').map(|pair| pair.split_once('=').unwrap()) {
            let mut keys = IMPAIRMENTS.iter().flat_map(|impairment| impairment.keys);
            (keys.find(|key| key.name == name).unwrap().set)(&mut effects, value).unwrap();
        }
        effects
    }

    #[test]
    fn every_field_of_the_effects_is_in_the_table_once() {
        let fields = serde_json::to_value(Effects::default()).unwrap();
        let fields: BTreeSet<_> = fields.as_object().unwrap().keys().cloned().collect();
        let named: Vec<_> = IMPAIRMENTS
            .iter()
            .map(|impairment| impairment.field.to_owned())
            .collect();
        assert_eq!(named.len(), fields.len());
        assert_eq!(BTreeSet::from_iter(named), fields);
    }

    #[test]
    fn each_is_read_from_the_text_that_describes_it() {
        let texts = [
            "aqm=codel 5ms 100ms ecn",
            "policer=20Mbit/s 64KiB",
            "narrow=1400 swallowed",
            "edits=strip-sack clamp-mss=1200 router=198.18.1.1",
            "duplicate=0.1%",
            "corrupt=0.001%",
            "reorder=0.1% 5ms",
            "jitter=normal 2ms 1ms,jitter_order=free",
            "changes=10s rate=50Mbit/s delay=20ms; 20s loss=1%",
        ];
        for text in texts {
            assert_eq!(read(text).effect_texts(), [text]);
        }
        let with_keys = IMPAIRMENTS
            .iter()
            .filter(|impairment| !impairment.keys.is_empty());
        assert!(
            with_keys
                .clone()
                .all(|impairment| texts.iter().any(|text| impairment.is_in(&read(text))))
        );
        assert_eq!(with_keys.count(), texts.len());
    }

    #[test]
    fn a_path_without_effects_has_nothing_to_describe() {
        assert!(Effects::default().effect_texts().is_empty());
    }
}
