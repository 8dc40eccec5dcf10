//! The live panel of `meme train` on a terminal, as lines of text with colours.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph, Sparkline, Widget};
use train::number_format::{duration, fixed};
use train::runtime::status::RunStatus;

use crate::output::grouped;

/// Narrower terminals get plain lines.
pub const NARROWEST: u16 = 50;
/// Wider ones leave the rest empty, so that few windows ever become narrower than a line.
const WIDEST: u16 = 90;
/// Maximum number of warnings that are shown.
const MAX_WARNINGS: usize = 2;
/// Columns of the labels.
const LABELS: u16 = 12;

/// What the panel shows.
pub struct Panel<'a> {
    pub name: &'a str,
    pub status: &'a RunStatus,
    /// Evaluation scores so far, oldest first, against human play if that is known.
    pub curve: &'a [f64],
    /// Warnings about the metrics.
    pub warnings: &'a [String],
}

impl Panel<'_> {
    /// Draws the panel for a terminal of this width.
    pub fn draw(&self, width: u16) -> Buffer {
        let warnings = self.warnings.len().min(MAX_WARNINGS) as u16;
        let area = Rect::new(0, 0, width.min(WIDEST), 6 + warnings);
        let mut buffer = Buffer::empty(area);
        let rows = Layout::vertical(vec![Constraint::Length(1); usize::from(area.height)]).split(area);
        self.title(rows[0], &mut buffer);
        self.progress(rows[1], &mut buffer);
        self.score(rows[2], &mut buffer);
        self.curve(rows[3], &mut buffer);
        labelled("speed", &self.speed(), rows[4], &mut buffer);
        labelled("learner", &self.learner(), rows[5], &mut buffer);
        for (warning, &row) in self.warnings.iter().zip(rows.iter().skip(6)) {
            let style = Style::new().fg(Color::Yellow);
            Line::from(vec![Span::styled("warning     ", style), Span::raw(warning.as_str())]).render(row, &mut buffer);
        }
        buffer
    }

    fn title(&self, row: Rect, buffer: &mut Buffer) {
        let used = self.name.chars().count() as u16 + 1;
        let rule = "─".repeat(usize::from(row.width.saturating_sub(used)));
        let name = Span::styled(format!("{} ", self.name), Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![name, Span::styled(rule, Style::new().add_modifier(Modifier::DIM))]).render(row, buffer);
    }

    fn progress(&self, row: Rect, buffer: &mut Buffer) {
        let RunStatus { frames, budget, .. } = *self.status;
        let mut text = format!(" {} of {} frames", grouped(frames), grouped(budget));
        if let Some(bytes) = self.status.saving {
            text += &format!(", saving ({:.0} MB so far)", bytes as f64 / 1e6);
        } else if let Some(seconds) = self.status.seconds_left.filter(|_| frames < budget) {
            text += &format!(", {} left", duration(seconds));
        }
        let bar = Constraint::Min(LABELS);
        let [bar, rest] = Layout::horizontal([bar, Constraint::Length(text.chars().count() as u16)]).areas(row);
        let share = (frames as f64 / budget.max(1) as f64).clamp(0.0, 1.0);
        let label = format!("{} %", (100.0 * share).floor());
        Gauge::default().ratio(share).label(label).gauge_style(Style::new().fg(Color::Cyan)).render(bar, buffer);
        Paragraph::new(text).render(rest, buffer);
    }

    fn score(&self, row: Rect, buffer: &mut Buffer) {
        let status = self.status;
        let mut parts = Vec::new();
        if let (Some(mean), Some(episodes)) = (status.evaluation_score, status.evaluation_episodes) {
            let age = status.evaluation_age_seconds.map_or(String::new(), |age| format!(", {} old", duration(age)));
            parts.push(format!("evaluation {} ({episodes} episodes{age})", fixed(mean, 2)));
        }
        if let Some(mean) = status.actor_score {
            parts.push(format!("actors {}", fixed(mean, 2)));
        }
        let text = if parts.is_empty() { "no episode has ended yet".to_owned() } else { parts.join(", ") };
        labelled("score", &text, row, buffer);
    }

    fn curve(&self, row: Rect, buffer: &mut Buffer) {
        let human = self.status.human_normalised;
        let label = if human.is_some() { "of human" } else { "curve" };
        let text = human.map_or(String::new(), |human| format!(" {}", fixed(human, 2)));
        let [name, curve, value] = Layout::horizontal([
            Constraint::Length(LABELS),
            Constraint::Min(1),
            Constraint::Length(text.chars().count() as u16),
        ])
        .areas(row);
        Paragraph::new(label).style(Style::new().add_modifier(Modifier::DIM)).render(name, buffer);
        Sparkline::default()
            .data(heights(self.curve, usize::from(curve.width)))
            .max(8)
            .style(Style::new().fg(Color::Green))
            .render(curve, buffer);
        Paragraph::new(text).render(value, buffer);
    }

    fn speed(&self) -> String {
        let RunStatus { frames_per_second, updates_per_second, .. } = self.status;
        match &self.status.waits_for {
            Some(waits_for) => format!("{frames_per_second:.0} frames/s, waiting for {waits_for}"),
            None => format!("{frames_per_second:.0} frames/s, {updates_per_second:.1} updates/s"),
        }
    }

    fn learner(&self) -> String {
        let status = self.status;
        let loss = status.loss.map_or(String::new(), |loss| format!("loss {}, ", fixed(loss, 3)));
        format!(
            "update {}, {loss}replay {} of {}, favourite policy {}",
            grouped(status.updates),
            grouped(status.sequences),
            grouped(status.capacity),
            status.favourite_policy
        )
    }
}

fn labelled(label: &str, text: &str, row: Rect, buffer: &mut Buffer) {
    let label = Span::styled(format!("{label:<width$}", width = usize::from(LABELS)), Modifier::DIM);
    Line::from(vec![label, Span::raw(text)]).render(row, buffer);
}

/// Scales a curve to at most `width` columns of 1 to 8 eighths.
fn heights(curve: &[f64], width: usize) -> Vec<u64> {
    let values: Vec<f64> = curve.iter().copied().filter(|value| value.is_finite()).collect();
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    let columns = values.len().min(width);
    let column = |i: usize| {
        let part = &values[i * values.len() / columns..(i + 1) * values.len() / columns];
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        if high > low { 1 + ((mean - low) / (high - low) * 7.0).round() as u64 } else { 4 }
    };
    (0..columns).map(column).collect()
}

/// Returns the rows of a buffer as text, with escape sequences for its styles if `colours`.
pub fn lines(buffer: &Buffer, colours: bool) -> Vec<String> {
    let width = usize::from(buffer.area.width.max(1));
    buffer.content.chunks(width).map(|row| line(row, colours)).collect()
}

fn line(row: &[ratatui::buffer::Cell], colours: bool) -> String {
    let used = row.iter().rposition(|cell| cell.symbol() != " " || cell.bg != Color::Reset).map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut before = (Color::Reset, Color::Reset, Modifier::empty());
    for cell in &row[..used] {
        let style = (cell.fg, cell.bg, cell.modifier);
        if colours && style != before {
            text += &escape(style);
            before = style;
        }
        text += cell.symbol();
    }
    if colours && before != (Color::Reset, Color::Reset, Modifier::empty()) {
        text += "\x1b[0m";
    }
    text
}

/// The escape sequence of a style, from a clean slate.
fn escape((fg, bg, modifier): (Color, Color, Modifier)) -> String {
    let number = |colour: Color| match colour {
        Color::Green => Some(2),
        Color::Yellow => Some(3),
        Color::Cyan => Some(6),
        _ => None,
    };
    let mut codes = vec!["0".to_owned()];
    codes.extend(modifier.contains(Modifier::BOLD).then(|| "1".to_owned()));
    codes.extend(modifier.contains(Modifier::DIM).then(|| "2".to_owned()));
    codes.extend(number(fg).map(|n| format!("3{n}")));
    codes.extend(number(bg).map(|n| format!("4{n}")));
    format!("\x1b[{}m", codes.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> RunStatus {
        let text = r#"{"frames": 10300000, "budget": 25000000, "updates": 41200, "frames_per_second": 5200.0,
            "updates_per_second": 18.1, "seconds_left": 750.0, "sequences": 18200, "capacity": 200000,
            "replay_bytes": 2100000000, "inserted": 18200, "sampled": 9, "samples_per_insert": 6.0,
            "actor_score": 3.25, "last_actor_score": 4.0, "intrinsic_return": 12.5, "evaluation_score": 14.1,
            "evaluation_episodes": 10, "evaluation_frames": 10000000, "evaluation_age_seconds": 40.0,
            "human_normalised": 0.92, "loss": 0.4121, "favourite_policy": 3, "waits_for": null, "saving": null}"#;
        serde_json::from_str(text).unwrap()
    }

    fn drawn(panel: &Panel<'_>, width: u16) -> Vec<String> {
        lines(&panel.draw(width), false)
    }

    #[test]
    fn everything_is_shown() {
        let warnings = ["the loss grew".to_owned(), "b".to_owned(), "c".to_owned()];
        let curve = [0.0, 0.1, 0.5, 1.0];
        let panel = Panel { name: "pong-quick-1", status: &status(), curve: &curve, warnings: &warnings };
        let shown = drawn(&panel, 90);
        assert_eq!(shown.len(), 8, "{shown:#?}");
        assert!(shown[0].starts_with("pong-quick-1 ───"), "{shown:#?}");
        assert!(shown[1].contains("41 %") && shown[1].ends_with(" 10 300 000 of 25 000 000 frames, 12 min left"));
        assert_eq!(shown[2], "score       evaluation 14.10 (10 episodes, 40 s old), actors 3.25");
        assert!(shown[3].starts_with("of human    ▁▂▅█ ") && shown[3].ends_with(" 0.92"), "{shown:#?}");
        assert_eq!(shown[4], "speed       5200 frames/s, 18.1 updates/s");
        assert_eq!(shown[5], "learner     update 41 200, loss 0.412, replay 18 200 of 200 000, favourite policy 3");
        assert_eq!(shown[6..], ["warning     the loss grew", "warning     b"]);
    }

    #[test]
    fn lines_fit_every_width() {
        let warnings = ["x".repeat(300)];
        let panel = Panel { name: &"n".repeat(90), status: &status(), curve: &[1.0; 500], warnings: &warnings };
        for width in NARROWEST..200 {
            for line in drawn(&panel, width) {
                assert!(line.chars().count() <= usize::from(width.min(WIDEST)), "{width}: {line}");
            }
        }
    }

    #[test]
    fn curve_is_scaled_and_averaged() {
        assert_eq!(heights(&[], 5), [0u64; 0]);
        assert_eq!(heights(&[3.0, 3.0], 5), [4, 4]);
        assert_eq!(heights(&[0.0, 1.0], 5), [1, 8]);
        assert_eq!(heights(&[0.0, 0.0, f64::NAN, 7.0, 7.0], 2), [1, 8]);
        assert_eq!(heights(&(0..1000).map(f64::from).collect::<Vec<_>>(), 7).len(), 7);
    }

    #[test]
    fn colours_end_with_the_line() {
        let panel = Panel { name: "a", status: &status(), curve: &[1.0, 2.0], warnings: &[] };
        let coloured = lines(&panel.draw(80), true);
        assert!(coloured[3].contains("\x1b[0;32m") && coloured[0].ends_with("\x1b[0m"), "{coloured:?}");
        let plain: Vec<String> = drawn(&panel, 80);
        assert!(plain.iter().all(|line| !line.contains('\x1b')));
    }
}
