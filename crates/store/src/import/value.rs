//! JSON of another program as a value, within a bound of memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Fields of the whole that no figure is taken from, and that are nearly all of what iperf3 and
/// flent write.
pub(super) const SKIPPED: [&str; 2] = ["intervals", "raw_values"];

/// Memory of a value in a list, of the first one, of the first field of an object and of each
/// field, in bytes.
const ITEM: usize = size_of::<Value>();
const FIRST_ITEM: usize = 4 * ITEM;
const FIRST_FIELD: usize = 11 * (size_of::<String>() + ITEM);
const FIELD: usize = 2 * size_of::<String>() + ITEM;

/// Returns the value that is written in `text`, without its fields in `skipped`.
///
/// # Errors
/// Fails if it is no JSON, and with an error of data if it takes more than `memory` bytes.
pub(super) fn read_value(
    text: &[u8],
    mut memory: usize,
    skipped: &[&str],
) -> serde_json::Result<Value> {
    let mut json = serde_json::Deserializer::from_slice(text);
    BoundedValueSeed {
        memory: &mut memory,
        skipped,
    }
    .deserialize(&mut json)
}

/// Returns the sentence about a value that takes more.
pub(super) fn too_much(memory: usize) -> String {
    format!("it would take more than {} MiB of memory", memory >> 20)
}

struct BoundedValueSeed<'m> {
    /// Memory that is left.
    memory: &'m mut usize,
    /// Names of fields that are passed over, of the whole alone.
    skipped: &'m [&'m str],
}

impl BoundedValueSeed<'_> {
    fn reserve_memory<E: Error>(&mut self, memory: usize) -> Result<(), E> {
        *self.memory = self
            .memory
            .checked_sub(memory)
            .ok_or_else(|| E::custom("too much"))?;
        Ok(())
    }

    fn nested_seed(&mut self) -> BoundedValueSeed<'_> {
        BoundedValueSeed {
            memory: self.memory,
            skipped: &[],
        }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        self.reserve_memory(text.len())?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.nested_seed())? {
            self.reserve_memory(if list.is_empty() { FIRST_ITEM } else { ITEM })?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if self.skipped.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            self.reserve_memory(
                name.len()
                    + if object.is_empty() {
                        FIRST_FIELD
                    } else {
                        FIELD
                    },
            )?;
            let value = fields.next_value_seed(self.nested_seed())?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}
