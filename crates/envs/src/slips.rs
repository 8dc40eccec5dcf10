//! How far a name that was typed is from one that there is.

/// Names longer than this are not compared: nobody mistypes them, and comparing takes time.
const LONGEST: usize = 64;

/// The least number of letters to insert, leave out, replace or swap with a neighbour to turn one word into the other.
pub fn slips(a: &str, b: &str) -> usize {
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX / 2;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // The last three rows of the table of distances between all beginnings.
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        assert_eq!(slips("", ""), 0);
        assert_eq!(slips("trace", "trace"), 0);
        assert_eq!(slips("trace", "trcae"), 1);
        assert_eq!(slips("trace", "traces"), 1);
        assert_eq!(slips("kitten", "sitting"), 3);
        assert_eq!(slips("", "abc"), 3);
        assert!(slips("pong", &"x".repeat(1_000_000)) > 1_000_000);
    }
}
