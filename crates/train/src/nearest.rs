//! The name that was probably meant.

use envs::slips;

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

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 5] =
        ["learner.batch_size", "replay.capacity_sequences", "replay.trace", "bandit.epsilon", "inference.max_batch"];

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
