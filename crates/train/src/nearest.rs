//! The name that was probably meant.

/// Names longer than this are not compared: nobody mistypes them, and comparing takes time.
const LONGEST: usize = 64;

/// The choice that `typed` differs from by the fewest slips, if they are few.
pub fn nearest_word<'a>(typed: &str, choices: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    best(choices.into_iter().map(|choice| (slips(typed, choice), choice)), typed)
}

/// A clause that asks whether that was meant, where there is something near.
pub fn hint(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
}

/// The path that `typed` is nearest to: by its last part alone (`batch_size` for `learner.batch_size`), or as a whole.
pub fn nearest_path<'a>(typed: &str, paths: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (section, key) = split(typed);
    let scored = paths.into_iter().map(|path| {
        let (path_section, path_key) = split(path);
        // Between equals, the one in the section that was typed is meant.
        let elsewhere = usize::from(section != path_section);
        let by_key = if is_part(key, path_key) || is_part(path_key, key) { 1 } else { slips(key, path_key) };
        (slips(typed, path).min(by_key + elsewhere), path)
    });
    best(scored, key)
}

/// Whether one name is the other with something added, as `capacity` of `capacity_sequences`.
fn is_part(part: &str, whole: &str) -> bool {
    part.len() >= 4 && part != whole && whole.contains(part)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// The first candidate with the least score, unless that is too much for a text of this length.
fn best<'a>(scored: impl Iterator<Item = (usize, &'a str)>, typed: &str) -> Option<&'a str> {
    let allowed = (typed.len() / 3).max(2);
    scored.filter(|(score, _)| *score <= allowed).min_by_key(|(score, _)| *score).map(|(_, candidate)| candidate)
}

/// The least number of letters to insert, leave out, replace or swap with a neighbour to turn one word into the other.
fn slips(a: &str, b: &str) -> usize {
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

    const PATHS: [&str; 5] =
        ["learner.batch_size", "replay.capacity_sequences", "replay.trace", "bandit.epsilon", "inference.max_batch"];

    #[test]
    fn slips_are_counted() {
        assert_eq!(slips("", ""), 0);
        assert_eq!(slips("trace", "trace"), 0);
        assert_eq!(slips("trace", "trcae"), 1);
        assert_eq!(slips("trace", "traces"), 1);
        assert_eq!(slips("kitten", "sitting"), 3);
        assert_eq!(slips("", "abc"), 3);
    }

    #[test]
    fn the_path_that_was_meant_is_found() {
        for (typed, meant) in [
            ("learner.batch_sise", "learner.batch_size"),
            ("lerner.batch_size", "learner.batch_size"),
            ("batch_size", "learner.batch_size"),
            ("learner.batch", "learner.batch_size"),
            ("replay.capacity", "replay.capacity_sequences"),
            ("replay.trace_length", "replay.trace"),
            ("learner.trace", "replay.trace"),
        ] {
            assert_eq!(nearest_path(typed, PATHS), Some(meant), "{typed}");
        }
        assert_eq!(nearest_path("colour", PATHS), None);
        assert_eq!(nearest_path(&"x".repeat(1_000_000), PATHS), None);
    }

    #[test]
    fn words_are_found_too() {
        assert_eq!(nearest_word("cdua", ["auto", "cpu", "cuda"]), Some("cuda"));
        assert_eq!(nearest_word("soft-watkins", ["soft_watkins", "peng"]), Some("soft_watkins"));
        assert_eq!(nearest_word("quantum", ["auto", "cpu", "cuda"]), None);
    }
}
