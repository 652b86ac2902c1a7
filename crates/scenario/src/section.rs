use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::key::{Key, NamedSetter, find};
use crate::{Place, ScenarioError};

/// The file, with which errors state a place.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

/// One table of the file.
pub(crate) struct Section<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    /// Begin of the table in the file, in bytes.
    at: usize,
}

impl<'a> Source<'a> {
    /// The file as TOML.
    pub(crate) fn tables(self) -> Result<Spanned<DeTable<'a>>, ScenarioError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message().replace('\n', ", "))
        })
    }

    fn error(self, at: usize, message: impl Into<String>) -> ScenarioError {
        ScenarioError::new(self.place(at), &message.into())
    }

    fn place(self, at: usize) -> Place {
        Place::new(self.file, self.text, at)
    }
}

impl<'a> Section<'a> {
    pub(crate) fn root(source: Source<'a>, root: &'a Spanned<DeTable<'a>>) -> Self {
        Self { source, table: root.get_ref(), at: 0 }
    }

    /// Sets in `target` what this section says, key by key as they come; `others` are read by the caller.
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
            let key =
                find(keys, others, name.get_ref()).map_err(|message| self.source.error(name.span().start, message))?;
            let text = self.scalar(key.name, value)?;
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
    pub(crate) fn value<V>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<V, String>,
    ) -> Result<Option<V>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let text = self.scalar(key, value)?;
        read(&text).map(Some).map_err(|why| self.error_at(key, why))
    }

    /// The values of the array at `key`; `None` where the key is not there.
    pub(crate) fn values(&self, key: &str) -> Result<Option<Vec<Cow<'a, str>>>, ScenarioError> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        array.iter().map(|value| self.scalar(key, value)).collect::<Result<_, _>>().map(Some)
    }

    /// The section `[key]` in this one; `None` where it is not there.
    pub(crate) fn section(&self, key: &str) -> Result<Option<Self>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Self { source: self.source, table, at: value.span().start })),
            _ => Err(self.error_at(key, "it must be a table")),
        }
    }

    /// The sections `[[key]]` in this one.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Self>, ScenarioError> {
        let values = self.array(key)?.into_iter().flat_map(|array| array.iter());
        let section = |value: &'a Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::Table(table) => Ok(Self { source: self.source, table, at: value.span().start }),
            _ => Err(self.error_at(key, format!("each must be a table, [[{key}]]"))),
        };
        values.map(section).collect()
    }

    pub(crate) fn is_table(&self, key: &str) -> bool {
        matches!(self.table.get(key).map(Spanned::get_ref), Some(DeValue::Table(_)))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// An error about the value of `key`, at its place.
    pub(crate) fn error_at(&self, key: &str, why: impl AsRef<str>) -> ScenarioError {
        ScenarioError::new(self.source.place(self.offset_of(key)), &format!("{key}: {}", why.as_ref()))
    }

    /// Returns the place of the value of `key` in bytes; of this section if the key is not there.
    pub(crate) fn offset_of(&self, key: &str) -> usize {
        self.table.get(key).map_or(self.at, |value| value.span().start)
    }

    /// Returns the places of `offsets` of the file, none of which is before the one that precedes it: the file is read
    /// once.
    pub(crate) fn places(&self, offsets: impl Iterator<Item = usize>) -> impl Iterator<Item = Place> {
        let source = self.source;
        offsets.scan((0, source.place(0)), move |(at, place), offset| {
            *place = place.behind(source.text.get(*at..offset).unwrap_or_default());
            *at = offset;
            Some(place.clone())
        })
    }

    /// An error about a key that should be there.
    pub(crate) fn missing(&self, key: &str) -> ScenarioError {
        self.error_at(key, "it is missing")
    }

    fn array(&self, key: &str) -> Result<Option<&'a DeArray<'a>>, ScenarioError> {
        match self.table.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Array(array)) => Ok(Some(array)),
            Some(_) => Err(self.error_at(key, format!("it must be a list, as [[{key}]] or [a, b] makes one"))),
        }
    }

    /// The text of a single value: files may write `mtu = 1500` or `mtu = "1500"`, flags know only text.
    fn scalar(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Result<Cow<'a, str>, ScenarioError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => Cow::Borrowed(text.as_ref()),
            DeValue::Integer(number) if number.radix() == 10 => Cow::Borrowed(number.as_str()),
            DeValue::Float(number) => Cow::Borrowed(number.as_str()),
            DeValue::Boolean(on) => Cow::Borrowed(if *on { "true" } else { "false" }),
            _ => {
                return Err(self
                    .source
                    .error(value.span().start, format!("{key}: it must be one text, decimal number, true or false")));
            }
        })
    }
}
