//! The picture of an agent at play: the game, and next to it the agent's values, policy and novelty.

use std::collections::VecDeque;

use envs::EnvSpec;

use super::canvas::{CHARACTER_WIDTH, Canvas, Rgb, text_width};
use super::scale;

const TEXT: Rgb = [224; 3];
const FAINT: Rgb = [112; 3];
const BAR: Rgb = [64, 112, 176];
const CHOSEN: Rgb = [240, 176, 48];

/// Distance of the panel's content from its edges.
const MARGIN: usize = 6;
/// Distance between lines of text.
const LINE: usize = 10;
/// Width of a line of text.
const CONTENT: usize = 196;
/// Height of the chart of intrinsic rewards.
const CHART: usize = 24;
/// Height of an action's row with its name,
const ROW: usize = 9;
/// which fits up to this many actions; more share the same height without names.
const MAX_NAMED: usize = 40;
/// Characters of the longest action name, `DOWNRIGHTFIRE`.
const NAME: usize = 13;
/// Left end and largest length of an action's bar.
const BAR_LEFT: usize = MARGIN + NAME * CHARACTER_WIDTH + 4;
const BAR_LENGTH: usize = 64;
/// Height above the rows of actions: five lines, the chart and a heading.
const HEADER: usize = MARGIN + 5 * LINE + CHART + 4 + LINE;

/// Draws pictures of one size, one per step.
pub struct Scene {
    game: (usize, usize),
    scale: usize,
    /// Height and width.
    pub size: (usize, usize),
    canvas: Canvas,
    title: String,
    actions: Vec<String>,
    policies: usize,
    /// The last intrinsic rewards, one per column of the chart.
    intrinsic: VecDeque<f32>,
}

/// One step to draw.
#[derive(Clone, Copy, Debug)]
pub struct SceneStep<'a> {
    /// The game, of one or three bytes per pixel.
    pub picture: &'a [u8],
    /// Episode number, from 1.
    pub episode: u64,
    /// Steps since the episode began.
    pub step: u64,
    /// Sum of rewards since the episode began.
    pub score: f64,
    pub policy: usize,
    /// Action probabilities, which the bars show; without them, the bars show the Q-values.
    pub probabilities: Option<&'a [f32]>,
    /// Q-value per action, in units of reward.
    pub q: &'a [f32],
    /// The chosen action.
    pub action: usize,
    /// Intrinsic reward of the observation; unknown for the last one of an episode, which the agent does not see.
    pub intrinsic: Option<f32>,
}

impl Scene {
    /// Creates a scene with pictures of the game of this height and width.
    pub fn new(spec: &EnvSpec, game: (usize, usize), policies: usize) -> Self {
        let scale = scale(game.0, game.1);
        let rows = spec.actions().min(MAX_NAMED) * ROW;
        let height = (game.0 * scale).max(HEADER + rows + MARGIN);
        let size = (height, game.1 * scale + CONTENT + 2 * MARGIN);
        Self {
            game,
            scale,
            size,
            canvas: Canvas::new(size.1, size.0),
            title: spec.name.clone(),
            actions: spec.action_names.clone(),
            policies,
            intrinsic: VecDeque::new(),
        }
    }

    /// Draws a step and returns the RGB pixels.
    pub fn draw(&mut self, shown: &SceneStep<'_>) -> &[u8] {
        self.canvas.fill((0, 0), (self.size.1, self.size.0), [0; 3]);
        self.canvas.draw(shown.picture, self.game, self.scale);
        self.intrinsic.extend(shown.intrinsic);
        if self.intrinsic.len() > CONTENT {
            self.intrinsic.pop_front();
        }
        self.numbers(shown);
        self.chart();
        self.rows(shown);
        &self.canvas.pixels
    }

    /// The panel's left edge.
    fn left(&self) -> usize {
        self.game.1 * self.scale
    }

    fn write(&mut self, (x, y): (usize, usize), text: &str, colour: Rgb) {
        let x = self.left() + x;
        self.canvas.write((x, y), text, colour);
    }

    /// Writes text that ends at the panel's right edge.
    fn write_right(&mut self, y: usize, text: &str, colour: Rgb) {
        let x = (MARGIN + CONTENT).saturating_sub(text_width(text));
        self.write((x, y), text, colour);
    }

    fn numbers(&mut self, shown: &SceneStep<'_>) {
        let title: String = self.title.chars().take(CONTENT / CHARACTER_WIDTH).collect();
        self.write((MARGIN, MARGIN), &title, FAINT);
        let lines = [
            ("score", number(shown.score)),
            ("episode, step", format!("{}, {}", shown.episode, shown.step)),
            ("policy", format!("{} (0 to {})", shown.policy, self.policies.saturating_sub(1))),
            ("intrinsic reward", shown.intrinsic.map_or(String::new(), |reward| format!("{reward:.4}"))),
        ];
        for (line, (name, value)) in lines.iter().enumerate() {
            let y = MARGIN + (line + 1) * LINE;
            self.write((MARGIN, y), name, FAINT);
            self.write_right(y, value, TEXT);
        }
    }

    /// Draws the last intrinsic rewards, the newest on the right, scaled to the largest.
    fn chart(&mut self) {
        let bottom = MARGIN + 5 * LINE + CHART;
        let (left, largest) = (self.left() + MARGIN, self.intrinsic.iter().copied().fold(0.0, f32::max));
        self.canvas.fill((left, bottom), (CONTENT, 1), FAINT);
        let first = CONTENT - self.intrinsic.len();
        for (column, &value) in self.intrinsic.iter().enumerate() {
            let height = length(value, largest, CHART - 1);
            self.canvas.fill((left + first + column, bottom - height), (1, height), BAR);
        }
    }

    fn rows(&mut self, shown: &SceneStep<'_>) {
        let named = self.actions.len() <= MAX_NAMED;
        let heading = if shown.probabilities.is_some() { "pi" } else { "Q" };
        let y = HEADER - LINE;
        self.write((BAR_LEFT, y), heading, FAINT);
        if named {
            self.write((MARGIN, y), "action", FAINT);
            self.write_right(y, "Q", FAINT);
        }
        let least = shown.q.iter().copied().fold(f32::INFINITY, f32::min);
        let most = shown.q.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for action in 0..self.actions.len() {
            let top = HEADER + action * MAX_NAMED * ROW / self.actions.len().max(MAX_NAMED);
            let colour = if action == shown.action { CHOSEN } else { BAR };
            let (value, of) = match shown.probabilities {
                Some(probabilities) => (probabilities.get(action).copied().unwrap_or(0.0), 1.0),
                None => (shown.q.get(action).map_or(0.0, |q| q - least), most - least),
            };
            let left = self.left() + BAR_LEFT;
            let thickness = if named { ROW - 2 } else { 1 };
            // At least one pixel, so that the chosen action is always visible.
            self.canvas.fill((left, top), (length(value, of, BAR_LENGTH).max(1), thickness), colour);
            if named {
                let colour = if action == shown.action { CHOSEN } else { TEXT };
                let name: String = self.actions[action].chars().take(NAME).collect();
                self.write((MARGIN, top), &name, colour);
                let q = shown.q.get(action).map_or(String::new(), |&q| number(f64::from(q)));
                self.write_right(top, &q, colour);
            }
        }
    }
}

/// Length in pixels of a bar for `value`, where `of` has the length `most`.
fn length(value: f32, of: f32, most: usize) -> usize {
    let share = if of > 0.0 { (value / of).clamp(0.0, 1.0) } else { 0.0 };
    // NaN becomes 0.
    (share * most as f32).round() as usize
}

/// Formats a number briefly: integers as they are, large numbers without decimals.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 10_000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use envs::ObservationKind;

    use super::*;

    fn scene(game: (usize, usize), actions: usize, policies: usize) -> Scene {
        let spec = EnvSpec {
            name: "game".to_owned(),
            observation_shape: vec![4],
            observation_kind: ObservationKind::F32,
            observation_parts: vec![],
            action_names: (0..actions).map(|action| format!("ACTION {action}")).collect(),
            frames_per_step: 4,
        };
        Scene::new(&spec, game, policies)
    }

    fn shown<'a>(picture: &'a [u8], probabilities: Option<&'a [f32]>, q: &'a [f32], action: usize) -> SceneStep<'a> {
        let intrinsic = Some(0.5);
        SceneStep { picture, episode: 1, step: 2, score: 3.0, policy: 4, probabilities, q, action, intrinsic }
    }

    /// Counts the pixels of a colour in a row of the picture.
    fn lit(pixels: &[u8], width: usize, y: usize, colour: Rgb) -> usize {
        pixels.as_chunks().0[y * width..(y + 1) * width].iter().filter(|&&pixel| pixel == colour).count()
    }

    #[test]
    fn bar_length_is_proportional_to_probability() {
        let mut scene = scene((210, 160), 3, 32);
        let (height, width) = scene.size;
        assert_eq!((height, width), (210, 160 + CONTENT + 2 * MARGIN));
        let picture = [0; 210 * 160];
        let probabilities = [0.25, 0.75, 0.0];
        let pixels = scene.draw(&shown(&picture, Some(&probabilities), &[0.0; 3], 1)).to_vec();
        // The last row of a bar is below the letters.
        let rows: Vec<_> = (0..3).map(|action| HEADER + action * ROW + 6).collect();
        assert_eq!(lit(&pixels, width, rows[0], BAR), 16);
        assert!(lit(&pixels, width, rows[1], CHOSEN) >= 48);
        assert_eq!(lit(&pixels, width, rows[2], BAR), 1);
    }

    #[test]
    fn value_bars_span_the_smallest_to_the_largest() {
        let mut scene = scene((10, 10), 3, 1);
        let width = scene.size.1;
        let picture = [9; 100];
        let pixels = scene.draw(&shown(&picture, None, &[-1.0, 0.0, 1.0], 2)).to_vec();
        let row = |action: usize| HEADER + action * ROW + 6;
        assert_eq!((lit(&pixels, width, row(0), BAR), lit(&pixels, width, row(1), BAR)), (1, 32));
        assert_eq!(lit(&pixels, width, 5, [9; 3]), 160);
    }

    #[test]
    fn any_number_of_actions_and_any_value_can_be_drawn() {
        for actions in [1, 18, 40, 41, 360, 1000] {
            let mut scene = scene((10, 10), actions, 32);
            assert!(scene.size.0 <= HEADER + MAX_NAMED * ROW + MARGIN);
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, 0.0] {
                let q = vec![value; actions];
                let mut shown = shown(&[1; 300], None, &q, actions - 1);
                shown.intrinsic = Some(value);
                scene.draw(&shown);
            }
        }
    }

    #[test]
    fn numbers_are_brief() {
        let texts = [0.0, -21.0, 2.3456, 123_456.7, 1e6].map(number);
        assert_eq!(texts, ["0", "-21", "2.35", "123457", "1000000"]);
    }
}
