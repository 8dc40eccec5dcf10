//! The report as one HTML page without anything that is fetched from elsewhere.

use super::cohort::{Cohort, LeftOut};
use super::figures::Figure;
use super::games_table::ID as GAMES;
use super::table::Table;
use crate::chart::svg::escaped;
use crate::output::count_of;

/// The style that all pages share.
const STYLE: &str = include_str!("../web/style.css");

/// Returns the page.
pub fn page(cohorts: &[Cohort], left_out: &[LeftOut], tables: &[Table], figures: &[Figure]) -> String {
    let runs: usize = cohorts.iter().flat_map(|cohort| cohort.tasks.values()).map(Vec::len).sum();
    let mut tasks: Vec<&String> = cohorts.iter().flat_map(|cohort| cohort.tasks.keys()).collect();
    tasks.sort();
    tasks.dedup();
    let heading = format!("{} on {}", count_of(runs, "run"), count_of(tasks.len(), "task"));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{heading} – meme report</title>\n<style>{STYLE}</style></head><body>\n<h1>{heading}</h1>\n"
    );
    for LeftOut { name, why } in left_out {
        text += &format!("<p class=\"warning\">Left out {}: {}.</p>\n", escaped(name), escaped(why));
    }
    let (curves, others): (Vec<&Figure>, Vec<&Figure>) =
        figures.iter().partition(|figure| figure.id.starts_with("learning_curve"));
    let (summaries, long): (Vec<&Table>, Vec<&Table>) = tables.iter().partition(|table| table.id != GAMES);
    text += &summaries.into_iter().map(section).collect::<String>();
    if !others.is_empty() {
        text += &format!("<h2>Figures</h2>\n<div class=\"charts\">{}</div>\n", drawn(&others));
    }
    text += &format!(
        "<h2>Learning curves</h2>\n<p class=\"faint\">Evaluation score: mean over seeds, and the range from the lowest to \
         the highest where all seeds have a score.</p>\n<div class=\"charts\">{}</div>\n",
        drawn(&curves)
    );
    text += &long.into_iter().map(section).collect::<String>();
    text + "</body></html>\n"
}

fn section(table: &Table) -> String {
    let notes: String = table.notes.iter().map(|note| format!("<p class=\"faint\">{}</p>\n", escaped(note))).collect();
    let id = table.id;
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\">{}</div>\n{notes}<p class=\"faint\">Beside this page: {id}.csv, \
         {id}.json</p>\n",
        escaped(&table.title),
        table.html()
    )
}

fn drawn(figures: &[&Figure]) -> String {
    let figure = |figure: &&Figure| {
        let caption = match figure.caption.as_str() {
            "" => String::new(),
            caption => format!("<figcaption>{}</figcaption>", escaped(caption)),
        };
        format!("<figure id=\"{}\">{}{caption}</figure>\n", figure.id, figure.svg)
    };
    figures.iter().map(figure).collect()
}
