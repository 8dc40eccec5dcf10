//! `docs/config.md`, made from what is known of every field.

use std::collections::BTreeMap;

use toml::Value;

use super::Config;
use super::field::{Field, Paper};
use super::fields::SECTIONS;
use super::presets::PRESETS;
use super::problem::ConfigError;
use super::text::written;

const HEAD: &str = "\
# Config

<!-- Made by `meme config doc > docs/config.md`. Change the code, not this page. -->

Everything that you may set, with the paper's values as defaults. Four layers are put on top of each other; the last one
counts:

1. the defaults below,
2. a preset: `--preset NAME`,
3. a file of yours, or the directory of a run: `--config PATH`,
4. single settings: `--set replay.trace=80 --set run.device=cpu`, as often as you like. The value is TOML; a bare word
   is text.

A file or preset holds only what differs from the defaults:

```toml
[replay]
trace = 80
period = 40
```

`meme config show` prints the outcome with where each value comes from and `meme config check` lists everything that is
wrong with it; both take the options above. `meme config diff A B` compares two presets, files or runs.
";

const LEGEND: &str = "\
## Fields

In the column of the paper, *silent* stands where a value belongs to the algorithm but the paper does not give it; the
default is then that of the papers it builds on, or ours. Nothing stands where a value belongs to this program alone.
";

/// The whole page.
pub fn page() -> Result<String, ConfigError> {
    let defaults = Config::default().values()?;
    let mut text = format!("{HEAD}\n{}\n{LEGEND}", presets());
    for section in SECTIONS {
        text += &format!("\n### `{}`\n{}\n\n", section.path, tidy(section.about));
        text += "| field | default | paper | what it may be | meaning |\n|---|---|---|---|---|\n";
        for field in section.fields {
            text += &row(field, &defaults);
        }
    }
    Ok(text)
}

/// The presets, each with the comment that its file begins with.
fn presets() -> String {
    let mut text = "## Presets\n\n".to_owned();
    for preset in PRESETS {
        let about: Vec<_> = preset.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        text += &format!("- [`{0}`](../configs/{0}.toml):\n  {1}\n", preset.name, about.join("\n  "));
    }
    text
}

fn row(field: &Field, defaults: &BTreeMap<&'static str, Value>) -> String {
    let default = defaults.get(field.path).map(written).unwrap_or_default();
    let paper = match field.paper {
        Paper::Says(value) | Paper::Differs(value) => format!("`{value}`"),
        Paper::Silent => "silent".to_owned(),
        Paper::Ours => String::new(),
    };
    let unit = if field.unit.is_empty() { String::new() } else { format!(" {}", field.unit) };
    let key = field.key();
    format!("| `{key}` | `{default}`{unit} | {paper} | {} | {} |\n", field.kind, tidy(field.meaning))
}

/// The lines of a doc-comment as one line of text.
fn tidy(comment: &str) -> String {
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}
