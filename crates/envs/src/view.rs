//! The classic view of a game: frames resized to a square, and the last few of them stacked.

use serde::{Deserialize, Serialize};

use crate::environments::{Ending, EnvError, EnvSpec, Environments, ObservationKind, RenderedPicture, Step};
use crate::saved;

/// What an agent sees of grey images; the default is the image itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Side of the square that images are resized to; `None` leaves them as they are.
    pub side: Option<usize>,
    /// Number of frames that an observation consists of, the newest last.
    pub stack: usize,
}

impl Default for View {
    fn default() -> Self {
        Self { side: None, stack: 1 }
    }
}

/// Environments seen through a [`View`].
pub struct ViewedEnvironments {
    inner: Box<dyn Environments>,
    view: View,
    spec: EnvSpec,
    /// Rows and columns of a frame before it is resized.
    raw: [usize; 2],
    resize: Option<[Resize; 2]>,
    /// Frames of each environment, oldest first.
    current: Vec<Vec<u8>>,
    /// The same at the end of its last episode.
    last: Vec<Vec<u8>>,
    /// Each group's last steps.
    steps: Vec<Vec<Step>>,
}

/// A saved environment with its frames.
#[derive(Serialize, Deserialize)]
struct Saved {
    inner: Vec<u8>,
    frames: Vec<u8>,
}

impl ViewedEnvironments {
    /// The environments through a view; refuses observations that are not grey images of bytes.
    pub fn new(inner: Box<dyn Environments>, view: View) -> Result<Self, EnvError> {
        let mut spec = inner.spec().clone();
        let (ObservationKind::U8, &[rows, columns] | &[rows, columns, 1]) =
            (spec.observation_kind, &spec.observation_shape[..])
        else {
            let (field, value) = match view.side {
                Some(side) => ("env.resize", side),
                None => ("env.frame_stack", view.stack),
            };
            let allowed = format!("the default for {}: its observations are not grey images", spec.name);
            return Err(EnvError::Setting { field, value: value.to_string(), allowed });
        };
        let resize = view.side.map(|side| [Resize::new(rows, side), Resize::new(columns, side)]);
        let [height, width] = view.side.map_or([rows, columns], |side| [side, side]);
        spec.observation_shape = if view.stack == 1 { vec![height, width] } else { vec![height, width, view.stack] };
        let count = inner.groups() * inner.group_size();
        let empty = || vec![vec![0; spec.observation_bytes()]; count];
        let (current, last) = (empty(), empty());
        let steps = vec![Vec::new(); inner.groups()];
        Ok(Self { inner, view, spec, raw: [rows, columns], resize, current, last, steps })
    }

    /// The frame of `observe`, resized.
    fn frame(&self, observe: impl Fn(&dyn Environments, &mut [u8])) -> Vec<u8> {
        let mut raw = vec![0; self.raw[0] * self.raw[1]];
        observe(&*self.inner, &mut raw);
        match &self.resize {
            Some([rows, columns]) => resize(&raw, self.raw[1], rows, columns),
            None => raw,
        }
    }

    /// Starts an episode's frames: the first one, as often as there are frames.
    fn begin(&mut self, group: usize, env: usize) {
        let frame = self.frame(|inner, out| inner.observation(group, env, out));
        let index = group * self.inner.group_size() + env;
        self.current[index] = frame.repeat(self.view.stack);
    }

    /// Copies frames to an observation: pixel by pixel, the newest frame last.
    fn interleave(&self, frames: &[u8], out: &mut [u8]) {
        let (stack, pixels) = (self.view.stack, frames.len() / self.view.stack);
        for (i, value) in out.iter_mut().enumerate() {
            *value = frames[i % stack * pixels + i / stack];
        }
    }
}

/// The frames after one more.
fn push(frames: &[u8], frame: &[u8]) -> Vec<u8> {
    [&frames[frame.len()..], frame].concat()
}

impl Environments for ViewedEnvironments {
    crate::delegate_to! { inner:
        fn groups(&self) -> usize;
        fn group_size(&self) -> usize;
        fn episodes_begun(&self, group: usize, env: usize) -> u64;
        fn skip_episodes(&mut self, group: usize, env: usize, begun: u64);
        fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError>;
        fn ram(&self, group: usize, env: usize) -> &[u8];
        fn render(&mut self, group: usize, env: usize, last: bool) -> Result<RenderedPicture, EnvError>;
        fn take_faults(&mut self) -> Vec<String>;
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self) -> Result<(), EnvError> {
        self.inner.reset()?;
        for index in 0..self.current.len() {
            self.begin(index / self.group_size(), index % self.group_size());
        }
        Ok(())
    }

    fn finish(&mut self, group: usize) -> Result<&[Step], EnvError> {
        let steps = self.inner.finish(group)?.to_vec();
        for (env, step) in steps.iter().enumerate() {
            let index = group * self.group_size() + env;
            match step.end.map(|end| end.ending) {
                None => {
                    let frame = self.frame(|inner, out| inner.observation(group, env, out));
                    self.current[index] = push(&self.current[index], &frame);
                }
                Some(ending) => {
                    // The last observation of an episode that was cut off is the one before the action.
                    self.last[index] = if ending == Ending::CutOff {
                        self.current[index].clone()
                    } else {
                        let frame = self.frame(|inner, out| inner.last_observation(group, env, out));
                        push(&self.current[index], &frame)
                    };
                    self.begin(group, env);
                }
            }
        }
        self.steps[group] = steps;
        Ok(&self.steps[group])
    }

    fn observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.interleave(&self.current[group * self.group_size() + env], out);
    }

    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.interleave(&self.last[group * self.group_size() + env], out);
    }

    fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError> {
        let inner = self.inner.save(group, env)?;
        let saved = Saved { inner, frames: self.current[group * self.group_size() + env].clone() };
        let content = postcard::to_stdvec(&saved).expect("bytes always serialize");
        Ok(saved::seal(&saved::label(&self.spec), &content))
    }

    fn restore(&mut self, group: usize, env: usize, bytes: &[u8]) -> Result<(), EnvError> {
        let foreign = |reason| EnvError::Foreign { name: self.spec.name.clone(), reason };
        let content = saved::open(&saved::label(&self.spec), bytes).map_err(foreign)?;
        let Saved { inner, frames } =
            postcard::from_bytes(content).map_err(|error| foreign(format!("it is malformed ({error})")))?;
        if frames.len() != self.spec.observation_bytes() {
            return Err(foreign("its frames have another size".to_owned()));
        }
        self.inner.restore(group, env, &inner)?;
        let index = group * self.group_size() + env;
        self.current[index] = frames;
        Ok(())
    }
}

/// Resizing along one axis: the pixels that each new pixel averages, with their weights.
struct Resize(Vec<Vec<(usize, f32)>>);

impl Resize {
    /// From `from` to `to` pixels: each new pixel is the mean over its share of the axis.
    fn new(from: usize, to: usize) -> Self {
        let share = from as f64 / to as f64;
        let pixel = |i: usize| {
            let (start, end) = (i as f64 * share, (i + 1) as f64 * share);
            let overlap = |j: usize| ((j + 1) as f64).min(end) - (j as f64).max(start);
            let covered = (start as usize..from).take_while(|&j| (j as f64) < end);
            covered.map(|j| (j, (overlap(j) / share) as f32)).filter(|(_, weight)| *weight > 0.0).collect()
        };
        Self((0..to).map(pixel).collect())
    }
}

/// Resizes an image of `width` columns, rows by `rows` and columns by `columns`.
fn resize(image: &[u8], width: usize, rows: &Resize, columns: &Resize) -> Vec<u8> {
    let narrow: Vec<f32> = image
        .chunks_exact(width)
        .flat_map(|row| columns.0.iter().map(|parts| parts.iter().map(|&(j, w)| w * f32::from(row[j])).sum()))
        .collect();
    let width = columns.0.len();
    let value = |parts: &[(usize, f32)], column: usize| -> f32 {
        parts.iter().map(|&(row, weight)| weight * narrow[row * width + column]).sum()
    };
    rows.0.iter().flat_map(|parts| (0..width).map(move |c| value(parts, c).round() as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WorkerConfig, make};

    fn viewed(view: View) -> Box<dyn Environments> {
        let mut config = WorkerConfig::new("catch".parse().unwrap(), "/no/python", "/no/package");
        (config.view, config.environments, config.groups) = (view, 2, 2);
        make(&config).unwrap()
    }

    fn observe(envs: &dyn Environments, group: usize) -> Vec<u8> {
        let mut observation = vec![0; envs.spec().observation_bytes()];
        envs.observation(group, 0, &mut observation);
        observation
    }

    fn step(envs: &mut dyn Environments, group: usize) -> Step {
        envs.start(group, &[1]).unwrap();
        envs.finish(group).unwrap()[0]
    }

    #[test]
    fn a_stack_holds_the_last_frames_and_starts_anew_with_each_episode() {
        let (mut plain, mut stacked) = (viewed(View::default()), viewed(View { side: None, stack: 3 }));
        assert_eq!(plain.spec().observation_shape.len() + 1, stacked.spec().observation_shape.len());
        plain.reset().unwrap();
        stacked.reset().unwrap();
        let mut frames = vec![observe(&*plain, 0); 3];
        let interleaved = |frames: &[Vec<u8>]| -> Vec<u8> {
            (0..frames[0].len()).flat_map(|pixel| frames.iter().map(move |frame| frame[pixel])).collect()
        };
        let mut ended = 0;
        for _ in 0..40 {
            assert_eq!(observe(&*stacked, 0), interleaved(&frames));
            let (expected, found) = (step(&mut *plain, 0), step(&mut *stacked, 0));
            assert_eq!(expected, found);
            if found.end.is_some() {
                ended += 1;
                let mut last = vec![0; plain.spec().observation_bytes()];
                plain.last_observation(0, 0, &mut last);
                let mut whole = vec![0; stacked.spec().observation_bytes()];
                stacked.last_observation(0, 0, &mut whole);
                assert_eq!(whole, interleaved(&[frames[1].clone(), frames[2].clone(), last]));
                frames = vec![observe(&*plain, 0); 3];
            } else {
                frames = vec![frames[1].clone(), frames[2].clone(), observe(&*plain, 0)];
            }
        }
        assert!(ended > 1);
    }

    #[test]
    fn a_restored_environment_has_the_frames_of_the_saved_one() {
        let view = View { side: Some(7), stack: 4 };
        let mut envs = viewed(view);
        envs.reset().unwrap();
        for _ in 0..5 {
            step(&mut *envs, 0);
        }
        let (saved, seen) = (envs.save(0, 0).unwrap(), observe(&*envs, 0));
        let mut other = viewed(view);
        other.reset().unwrap();
        other.restore(1, 0, &saved).unwrap();
        assert_eq!(observe(&*other, 1), seen);
        assert_eq!(step(&mut *other, 1), step(&mut *envs, 0));
        assert_eq!(observe(&*other, 1), observe(&*envs, 0));
        let refused = viewed(View { side: Some(8), stack: 4 }).restore(0, 0, &saved).unwrap_err().to_string();
        assert!(refused.contains("it belongs to `catch [7, 7, 4]"), "{refused}");
    }

    #[test]
    fn resizing_averages_shares_of_pixels() {
        // 5 to 2: pixels 0, 1 and half of 2; half of 2, 3 and 4.
        let columns = Resize::new(5, 2);
        let rows = Resize::new(1, 1);
        assert_eq!(resize(&[10, 20, 30, 40, 50], 5, &rows, &columns), [18, 42]);
        assert_eq!(resize(&[0, 100, 200, 100], 2, &Resize::new(2, 1), &Resize::new(2, 1)), [100]);
        assert_eq!(resize(&[7, 9], 2, &Resize::new(1, 2), &Resize::new(2, 4)), [7, 7, 9, 9, 7, 7, 9, 9]);
        let (rows, columns) = (Resize::new(210, 84), Resize::new(160, 84));
        assert_eq!(resize(&[200; 210 * 160], 160, &rows, &columns), vec![200; 84 * 84]);
    }
}
