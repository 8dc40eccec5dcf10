//! What programs read of `meme train`.

use serde_json::Value;

use crate::runs::{Runs, works};

#[test]
fn programs_get_json_lines_or_nothing_on_standard_error() {
    let runs = Runs::new();
    let said = works(&mut runs.train(&["--frames", "60", "--log-format", "json"])).said;
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["time_unix"].is_number() && line["level"].is_string()), "{said}");
    let last = lines.last().unwrap();
    assert!(last["level"] == "info" && last["message"].as_str().unwrap().contains("finished at"), "{said}");

    let quiet = works(&mut runs.train(&["--frames", "60", "--fresh", "--quiet"]));
    assert_eq!(quiet.said, "");
    assert!(quiet.printed.starts_with("run: "), "{}", quiet.printed);
}
