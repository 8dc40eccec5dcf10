//! A series that grows for weeks in bounded memory.

/// Entries of a series: one of every so many, evenly spaced, and always the last.
pub struct Thinned<T> {
    kept: Vec<T>,
    most: usize,
    every: usize,
    seen: usize,
}

impl<T> Thinned<T> {
    /// An empty series that keeps about `most` entries, and at least half as many once it has grown.
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most, every: 1, seen: 0 }
    }

    /// Adds an entry. Drops every other one when there are too many.
    pub fn push(&mut self, entry: T) {
        // The last entry stays only until the next if it is not one of every so many.
        if self.seen > 0 && !(self.seen - 1).is_multiple_of(self.every) {
            self.kept.pop();
        }
        self.kept.push(entry);
        self.seen += 1;
        if self.kept.len() > self.most {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Starts the series again.
    pub fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// The entries that are kept, in order.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    /// Number of entries that were added.
    pub fn seen(&self) -> usize {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_thinned_evenly_and_end_with_the_last() {
        let mut series = Thinned::new(1000);
        for entry in 0..10_000 {
            series.push(entry);
            assert!(series.kept().len() <= 1001);
            assert_eq!(series.kept().last(), Some(&entry));
        }
        let kept = series.kept();
        assert_eq!((kept[0], kept[1], series.every, series.seen()), (0, 16, 16, 10_000));
        assert!(kept.len() > 500 && kept.windows(2).all(|pair| pair[1] - pair[0] <= 16), "{kept:?}");
    }
}
