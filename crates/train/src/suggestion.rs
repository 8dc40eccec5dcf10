//! Suggestions for mistyped names: "did you mean …?".

use strsim::osa_distance;

/// Longer texts get no suggestion: the cost of a comparison grows with the length.
const MAX_LENGTH: usize = 64;

/// Returns the choice closest to `typed`, if it is close enough to be meant.
pub fn suggest_word<'a>(typed: &str, choices: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest(typed, typed, choices.into_iter().map(|choice| (osa_distance(typed, choice), choice)))
}

/// Returns the path closest to `typed`.
///
/// It compares the last part alone (`batch_size` for `learner.batch_size`) and the whole.
pub fn suggest_path<'a>(typed: &str, paths: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (section, key) = split(typed);
    let scored = paths.into_iter().map(|path| {
        let (path_section, path_key) = split(path);
        // Of two equally close paths, the one in the typed section wins.
        let elsewhere = usize::from(section != path_section);
        let by_key = if is_part(key, path_key) || is_part(path_key, key) { 1 } else { osa_distance(key, path_key) };
        (osa_distance(typed, path).min(by_key + elsewhere), path)
    });
    suggest(typed, key, scored)
}

/// A clause that offers the suggestion, or an empty string without one.
pub fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|suggestion| format!("; did you mean {suggestion}?")).unwrap_or_default()
}

/// Whether one name extends the other, as `capacity_sequences` extends `capacity`.
fn is_part(part: &str, whole: &str) -> bool {
    part.len() >= 4 && part != whole && whole.contains(part)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// The first candidate with the smallest distance, unless it is too far from `compared`.
fn suggest<'a>(typed: &str, compared: &str, candidates: impl Iterator<Item = (usize, &'a str)>) -> Option<&'a str> {
    if typed.len() > MAX_LENGTH {
        return None;
    }
    let allowed = (compared.len() / 3).max(2);
    let close = candidates.filter(|(distance, _)| *distance <= allowed);
    close.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 5] =
        ["learner.batch_size", "replay.capacity_sequences", "replay.trace", "bandit.epsilon", "inference.max_batch"];

    #[test]
    fn suggests_closest_path() {
        for (typed, meant) in [
            ("learner.batch_sise", "learner.batch_size"),
            ("lerner.batch_size", "learner.batch_size"),
            ("batch_size", "learner.batch_size"),
            ("learner.batch", "learner.batch_size"),
            ("replay.capacity", "replay.capacity_sequences"),
            ("replay.trace_length", "replay.trace"),
            ("learner.trace", "replay.trace"),
        ] {
            assert_eq!(suggest_path(typed, PATHS), Some(meant), "{typed}");
        }
        assert_eq!(suggest_path("colour", PATHS), None);
        assert_eq!(suggest_path(&"x".repeat(1_000_000), PATHS), None);
    }

    #[test]
    fn suggests_closest_word() {
        assert_eq!(suggest_word("cdua", ["auto", "cpu", "cuda"]), Some("cuda"));
        assert_eq!(suggest_word("soft-watkins", ["soft_watkins", "peng"]), Some("soft_watkins"));
        assert_eq!(suggest_word("quantum", ["auto", "cpu", "cuda"]), None);
    }
}
