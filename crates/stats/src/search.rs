/// Returns the first index from `low` to below `high` at which `holds`, and `high` if there is none;
/// at every later one it must hold, too, so that the search halves.
pub(crate) fn first_index(low: usize, high: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = usize::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
