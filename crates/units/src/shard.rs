use std::str::FromStr;

/// One of several parts of a list of rows that separate processes work on: of n shards, shard i has
/// row i and every n-th row from there on, so that rows of a grid that grow along an axis are spread over all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `count`.
    number: usize,
    count: usize,
}

impl Shard {
    /// Returns the rows of this shard, in their order.
    ///
    /// # Errors
    /// Fails if there are fewer rows than shards, some of which would be empty.
    pub fn rows_of<T>(self, rows: Vec<T>) -> Result<Vec<T>, String> {
        let count = self.count;
        if rows.len() < count {
            let rows = rows.len();
            return Err(format!(
                "there are {rows} rows for {count} shards; take {rows} shards at most"
            ));
        }
        let rows = rows.into_iter().enumerate();
        let own = rows.filter(|(index, _)| self.has_row(*index));
        Ok(own.map(|(_, row)| row).collect())
    }

    /// Returns true if the row with this index, which counts from 0, is of this shard.
    pub fn has_row(self, index: usize) -> bool {
        index % self.count == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, count) = text.split_once('/').unwrap_or_default();
        match (number.parse(), count.parse()) {
            (Ok(number), Ok(count)) if (1..=count).contains(&number) => Ok(Self { number, count }),
            _ => Err("write a shard and their number, as 3/16; shards count from 1".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_shard_and_shards_differ_by_one_row() {
        let rows: Vec<u32> = (0..256).collect();
        for count in [1, 3, 16, 255, 256] {
            let shards: Vec<Vec<u32>> = (1..=count)
                .map(|number| format!("{number}/{count}").parse::<Shard>().unwrap())
                .map(|shard| shard.rows_of(rows.clone()).unwrap())
                .collect();
            let lengths = shards.iter().map(Vec::len);
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            let mut all = shards.concat();
            all.sort_unstable();
            assert_eq!(all, rows, "{count}");
        }
        let third: Shard = "3/4".parse().unwrap();
        assert_eq!(third.rows_of(rows).unwrap()[..3], [2, 6, 10]);
    }

    #[test]
    fn no_shard_is_empty_and_what_is_no_shard_is_refused() {
        let last: Shard = "5/5".parse().unwrap();
        let refused = last.rows_of(vec![0; 4]).unwrap_err();
        assert_eq!(
            refused,
            "there are 4 rows for 5 shards; take 4 shards at most"
        );
        for text in [
            "",
            "3",
            "0/4",
            "5/4",
            "1/0",
            "-1/4",
            "1/4/2",
            "1/99999999999999999999",
            "a/b",
        ] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
