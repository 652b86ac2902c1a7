/// A value that may be unknown, as text.
pub trait OptionText<T> {
    /// Returns the text of the value, or an empty one without a value.
    fn map_text(self, to_text: impl FnOnce(T) -> String) -> String;
}

impl<T> OptionText<T> for Option<T> {
    fn map_text(self, to_text: impl FnOnce(T) -> String) -> String {
        self.map(to_text).unwrap_or_default()
    }
}
