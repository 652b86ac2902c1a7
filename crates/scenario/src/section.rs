use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::key::{Key, NamedSetter, find_key};
use crate::{FileLocation, ScenarioError};

/// The file, with which errors state a place.
#[derive(Clone, Copy)]
pub(crate) struct FileSource<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

/// One table of the file.
pub(crate) struct FileSection<'a> {
    source: FileSource<'a>,
    table: &'a DeTable<'a>,
    /// Begin of the table in the file, in bytes.
    at: usize,
}

impl<'a> FileSource<'a> {
    /// The file as TOML.
    pub(crate) fn parse_tables(self) -> Result<Spanned<DeTable<'a>>, ScenarioError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error_at_offset(at, error.message().replace('\n', ", "))
        })
    }

    fn error_at_offset(self, at: usize, message: impl Into<String>) -> ScenarioError {
        ScenarioError::new(self.location_at_offset(at), &message.into())
    }

    fn location_at_offset(self, at: usize) -> FileLocation {
        FileLocation::new(self.file, self.text, at)
    }
}

impl<'a> FileSection<'a> {
    pub(crate) fn from_root(source: FileSource<'a>, root: &'a Spanned<DeTable<'a>>) -> Self {
        Self {
            source,
            table: root.get_ref(),
            at: 0,
        }
    }

    /// Sets in `target` what this section says, key by key as they come; `others` are read by the
    /// caller.
    pub(crate) fn set_all<T, S: Fn(&mut T, &str) -> Result<(), String>>(
        &self,
        keys: &[NamedSetter<S>],
        others: &[&str],
        target: &mut T,
    ) -> Result<(), ScenarioError> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            if others.contains(&name.get_ref().as_ref()) {
                continue;
            }
            let key = find_key(keys, others, name.get_ref())
                .map_err(|message| self.source.error_at_offset(name.span().start, message))?;
            let text = self.scalar_text(key.name, value)?;
            (key.set)(target, &text).map_err(|why| self.error_at(key.name, why))?;
        }
        Ok(())
    }

    /// Fails if there is a key that is not in `names`.
    pub(crate) fn has_only(&self, names: &[&str]) -> Result<(), ScenarioError> {
        const NO_KEYS: &[Key<()>] = &[];
        self.set_all(NO_KEYS, names, &mut ())
    }

    /// The value of `key` as `read` reads it; `None` where the key is not there.
    pub(crate) fn read_value<V>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<V, String>,
    ) -> Result<Option<V>, ScenarioError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let text = self.scalar_text(key, value)?;
        read(&text).map(Some).map_err(|why| self.error_at(key, why))
    }

    /// The values of the array at `key`; `None` where the key is not there.
    pub(crate) fn read_values(
        &self,
        key: &str,
    ) -> Result<Option<Vec<Cow<'a, str>>>, ScenarioError> {
        let Some(array) = self.array_at(key)? else {
            return Ok(None);
        };
        array
            .iter()
            .map(|value| self.scalar_text(key, value))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// The section `[key]` in this one; `None` where it is not there.
    pub(crate) fn child_section(&self, key: &str) -> Result<Option<Self>, ScenarioError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let section = self.section_of(value);
        section
            .map(Some)
            .ok_or_else(|| self.error_at(key, "it must be a table"))
    }

    /// The sections `[[key]]` in this one.
    pub(crate) fn child_sections(&self, key: &str) -> Result<Vec<Self>, ScenarioError> {
        let values = self
            .array_at(key)?
            .into_iter()
            .flat_map(|array| array.iter());
        values
            .map(|value| {
                self.section_of(value)
                    .ok_or_else(|| self.error_at(key, format!("each must be a table, [[{key}]]")))
            })
            .collect()
    }

    /// The section that a value in this one is, if it is a table.
    fn section_of(&self, value: &'a Spanned<DeValue<'a>>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Self {
                source: self.source,
                table,
                at: value.span().start,
            }),
            _ => None,
        }
    }

    pub(crate) fn is_table(&self, key: &str) -> bool {
        matches!(
            self.table.get(key).map(Spanned::get_ref),
            Some(DeValue::Table(_))
        )
    }

    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// An error about the value of `key`, at its place.
    pub(crate) fn error_at(&self, key: &str, why: impl AsRef<str>) -> ScenarioError {
        ScenarioError::new(
            self.source.location_at_offset(self.offset_of(key)),
            &format!("{key}: {}", why.as_ref()),
        )
    }

    /// Returns the place of the value of `key` in bytes; of this section if the key is not there.
    pub(crate) fn offset_of(&self, key: &str) -> usize {
        self.table
            .get(key)
            .map_or(self.at, |value| value.span().start)
    }

    /// Returns the places of `offsets` of the file, none of which is before the one that precedes
    /// it: the file is read once.
    pub(crate) fn offset_locations(
        &self,
        offsets: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = FileLocation> {
        let source = self.source;
        offsets.scan(
            (0, source.location_at_offset(0)),
            move |(at, place), offset| {
                *place = place.after_text(source.text.get(*at..offset).unwrap_or_default());
                *at = offset;
                Some(place.clone())
            },
        )
    }

    /// An error about a key that should be there.
    pub(crate) fn missing_key(&self, key: &str) -> ScenarioError {
        self.error_at(key, "it is missing")
    }

    fn array_at(&self, key: &str) -> Result<Option<&'a DeArray<'a>>, ScenarioError> {
        match self.table.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Array(array)) => Ok(Some(array)),
            Some(_) => Err(self.error_at(
                key,
                format!("it must be a list, as [[{key}]] or [a, b] makes one"),
            )),
        }
    }

    /// The text of a single value: files may write `mtu = 1500` or `mtu = "1500"`, flags know only
    /// text.
    fn scalar_text(
        &self,
        key: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Cow<'a, str>, ScenarioError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => Cow::Borrowed(text.as_ref()),
            DeValue::Integer(number) if number.radix() == 10 => Cow::Borrowed(number.as_str()),
            DeValue::Float(number) => Cow::Borrowed(number.as_str()),
            DeValue::Boolean(on) => Cow::Borrowed(if *on { "true" } else { "false" }),
            _ => {
                return Err(self.source.error_at_offset(
                    value.span().start,
                    format!("{key}: it must be one text, decimal number, true or false"),
                ));
            }
        })
    }
}
