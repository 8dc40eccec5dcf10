//! `docs/config.md`, generated from the declaration of every field.

use config_schema::text::written;
use config_schema::{FlatField, Kind, Paper, value_at};
use toml::Table;
use train::config::{Config, ConfigError, PRESETS, SECTIONS};

/// The page without its lists.
const TEMPLATE: &str = include_str!("config_page.md");

/// Returns the whole page.
pub fn page() -> Result<String, ConfigError> {
    let defaults = Table::try_from(Config::default())?;
    let mut presets = String::new();
    for preset in PRESETS {
        // A preset's file begins with a comment that describes it.
        let about: Vec<_> = preset.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        presets += &format!("- [`{0}`](../configs/{0}.toml):\n  {1}\n", preset.name, about.join("\n  "));
    }
    let mut sections = String::new();
    for section in SECTIONS.iter() {
        sections += &format!("\n### `{}`\n{}\n\n", section.path, section.about.trim());
        sections += "| field | default | paper | values | resume | description |\n|---|---|---|---|---|---|\n";
        section.fields.iter().for_each(|field| sections += &row(field, &defaults));
    }
    Ok(TEMPLATE.replace("{presets}", presets.trim()).replace("{sections}", sections.trim()))
}

fn row(field: &FlatField, defaults: &Table) -> String {
    let default = value_at(defaults, &field.path).map(written).unwrap_or_default();
    let paper = match field.paper {
        Paper::Default => format!("`{default}`"),
        Paper::Other(value) => format!("`{value}`"),
        Paper::Silent => "silent".to_owned(),
        Paper::Ours => String::new(),
    };
    let unit = if field.unit.is_empty() { String::new() } else { format!(" {}", field.unit) };
    let mut about = field.about.trim().to_owned();
    if let Kind::Choice(words) = field.kind {
        words.iter().for_each(|(word, meaning)| about += &format!("<br>`{word}`: {}", meaning.trim()));
    }
    let resume = if field.changeable { "yes" } else { "" };
    format!("| `{}` | `{default}`{unit} | {paper} | {} | {resume} | {about} |\n", field.name, field.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_is_up_to_date() {
        let committed = include_str!("../../../docs/config.md");
        assert!(committed == page().unwrap(), "docs/config.md is out of date: run `meme config doc > docs/config.md`");
    }
}
