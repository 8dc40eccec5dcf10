//! Environments whose images are averaged down as they arrive, so that nothing behind them handles the larger ones.

use std::cell::RefCell;
use std::ops::Range;

use crate::environments::{EnvSpec, Environments, ObservationKind, ObservationPart, RenderedPicture, Step};
use crate::error::EnvError;

/// Environments whose images have been averaged over squares of pixels.
pub(crate) struct ShrunkEnvironments {
    environments: Box<dyn Environments>,
    spec: EnvSpec,
    arrays: Vec<ShrunkArray>,
    /// The observation before it is averaged.
    whole: RefCell<Vec<u8>>,
}

/// One array of an observation.
struct ShrunkArray {
    /// Where it is before and afterwards.
    places: [Range<usize>; 2],
    /// `None` where it stays as it is.
    shrink: Option<Shrink>,
}

impl ShrunkEnvironments {
    /// Shrinks images that are larger than `max_side`, each by the smallest sufficient integer factor. Environments
    /// without are returned as they are.
    pub fn wrap(environments: Box<dyn Environments>, max_side: usize) -> Box<dyn Environments> {
        let mut spec = environments.spec().clone();
        let mut parts = spec.observation_arrays();
        let before = ObservationPart::places(&parts);
        let shrinks: Vec<_> = parts.iter_mut().map(|part| Shrink::apply_to_shape(part, max_side)).collect();
        if shrinks.iter().all(Option::is_none) {
            return environments;
        }
        let after = ObservationPart::places(&parts);
        let array = |((before, after), shrink)| ShrunkArray { places: [before, after], shrink };
        let arrays = before.into_iter().zip(after).zip(shrinks).map(array).collect();
        let whole = RefCell::new(vec![0; spec.observation_bytes()]);
        if spec.observation_parts.is_empty() {
            spec.observation_shape = parts.remove(0).shape;
        } else {
            spec.observation_shape = vec![ObservationPart::total_bytes(&parts)];
            spec.observation_parts = parts;
        }
        Box::new(Self { environments, spec, arrays, whole })
    }

    /// Shrinks the observation that `copy` writes.
    fn shrunk(&self, out: &mut [u8], copy: impl FnOnce(&mut [u8])) {
        let mut whole = self.whole.borrow_mut();
        copy(&mut whole);
        for ShrunkArray { places: [before, after], shrink } in &self.arrays {
            let (whole, out) = (&whole[before.clone()], &mut out[after.clone()]);
            match shrink {
                Some(shrink) => shrink.apply(whole, out),
                None => out.copy_from_slice(whole),
            }
        }
    }
}

impl Environments for ShrunkEnvironments {
    crate::delegate_to! { environments:
        fn groups(&self) -> usize;
        fn group_size(&self) -> usize;
        fn reset(&mut self) -> Result<(), EnvError>;
        fn episodes_begun(&self, group: usize, env: usize) -> u64;
        fn skip_episodes(&mut self, group: usize, env: usize, begun: u64);
        fn start(&mut self, group: usize, actions: &[usize]) -> Result<(), EnvError>;
        fn finish(&mut self, group: usize) -> Result<&[Step], EnvError>;
        fn ram(&self, group: usize, env: usize) -> &[u8];
        fn render(&mut self, group: usize, env: usize, last: bool) -> Result<RenderedPicture, EnvError>;
        fn save(&mut self, group: usize, env: usize) -> Result<Vec<u8>, EnvError>;
        fn restore(&mut self, group: usize, env: usize, saved: &[u8]) -> Result<(), EnvError>;
        fn take_faults(&mut self) -> Vec<String>;
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.shrunk(out, |whole| self.environments.observation(group, env, whole));
    }

    fn last_observation(&self, group: usize, env: usize, out: &mut [u8]) {
        self.shrunk(out, |whole| self.environments.last_observation(group, env, whole));
    }
}

/// Averages an image over squares of `factor` pixels per side. Squares at the edge average the pixels inside.
struct Shrink {
    height: usize,
    width: usize,
    channels: usize,
    factor: usize,
    kind: ObservationKind,
}

impl Shrink {
    /// How to shrink an image to `max_side`, and its shape afterwards; `None` for a vector or a small image.
    fn apply_to_shape(image: &mut ObservationPart, max_side: usize) -> Option<Self> {
        let (&[height, width] | &[height, width, _]) = &image.shape[..] else { return None };
        let factor = height.max(width).div_ceil(max_side);
        let channels = image.shape.get(2).copied().unwrap_or(1);
        image.shape[..2].copy_from_slice(&[height.div_ceil(factor), width.div_ceil(factor)]);
        (factor > 1).then_some(Self { height, width, channels, factor, kind: image.kind })
    }

    /// # Panics
    /// If a slice does not have the length of its image.
    fn apply(&self, whole: &[u8], out: &mut [u8]) {
        match self.kind {
            ObservationKind::U8 => {
                self.average(whole, out, |bytes: &[u8; 1]| f32::from(bytes[0]), |mean| [(mean + 0.5) as u8])
            }
            ObservationKind::F32 => self.average(whole, out, |bytes| f32::from_le_bytes(*bytes), f32::to_le_bytes),
        }
    }

    fn average<const BYTES: usize>(
        &self,
        whole: &[u8],
        out: &mut [u8],
        read: impl Fn(&[u8; BYTES]) -> f32,
        write: impl Fn(f32) -> [u8; BYTES],
    ) {
        let Self { height, width, channels, factor, .. } = *self;
        let (whole, _) = whole.as_chunks::<BYTES>();
        let (out, _) = out.as_chunks_mut::<BYTES>();
        assert_eq!(whole.len(), height * width * channels, "an image of another size");
        assert_eq!(out.len(), height.div_ceil(factor) * width.div_ceil(factor) * channels, "an image of another size");
        let line = width * channels;
        let mut sums = vec![0.0; line];
        let squares = whole.chunks(factor * line).zip(out.chunks_exact_mut(width.div_ceil(factor) * channels));
        for (lines, out) in squares {
            // Down the columns first, where neighbours are added at once.
            sums.fill(0.0);
            for line in lines.chunks_exact(line) {
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += read(value));
            }
            let rows = lines.len() / line;
            for (square, out) in sums.chunks(factor * channels).zip(out.chunks_exact_mut(channels)) {
                let pixels = (rows * square.len() / channels) as f32;
                for (channel, out) in out.iter_mut().enumerate() {
                    *out = write(square.iter().skip(channel).step_by(channels).sum::<f32>() / pixels);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;
    use crate::workers::WorkerConfig;

    fn shrunk(height: usize, width: usize, channels: usize, factor: usize, whole: &[u8]) -> Vec<u8> {
        let mut out = vec![0; height.div_ceil(factor) * width.div_ceil(factor) * channels];
        Shrink { height, width, channels, factor, kind: ObservationKind::U8 }.apply(whole, &mut out);
        out
    }

    #[test]
    fn averages_squares_and_rounds_to_the_nearest_byte() {
        assert_eq!(shrunk(2, 4, 1, 2, &[0, 1, 255, 255, 1, 1, 255, 255]), [1, 255]);
        assert_eq!(shrunk(2, 2, 1, 2, &[0, 0, 0, 1]), [0]);
    }

    #[test]
    fn squares_at_the_edge_average_the_pixels_inside() {
        assert_eq!(shrunk(3, 3, 1, 2, &[0, 2, 10, 4, 6, 20, 40, 60, 80]), [3, 15, 50, 80]);
    }

    #[test]
    fn channels_stay_apart() {
        assert_eq!(shrunk(2, 2, 3, 2, &[0, 100, 200, 2, 102, 202, 4, 104, 204, 6, 106, 206]), [3, 103, 203]);
    }

    #[test]
    fn floats_are_averaged_too() {
        let bytes: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut out = vec![0; 16];
        Shrink { height: 3, width: 4, channels: 1, factor: 2, kind: ObservationKind::F32 }.apply(&bytes, &mut out);
        let values: Vec<f32> = out.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(values, [2.5, 4.5, 8.5, 10.5]);
    }

    #[test]
    fn a_set_shows_the_images_of_the_set_it_wraps_in_small() {
        let mut config = WorkerConfig::new("catch".parse().unwrap(), "/no/python", "/no/package");
        let (mut whole, mut small) = (make(&config).unwrap(), {
            config.max_side = Some(5);
            make(&config).unwrap()
        });
        assert_eq!(
            (&whole.spec().observation_shape[..], &small.spec().observation_shape[..]),
            (&[10, 10][..], &[5, 5][..])
        );
        for set in [&mut whole, &mut small] {
            set.reset().unwrap();
            set.start(0, &[1]).unwrap();
            set.finish(0).unwrap();
        }
        let mut images = [vec![0; 10 * 10], vec![0; 5 * 5]];
        whole.observation(0, 0, &mut images[0]);
        small.observation(0, 0, &mut images[1]);
        assert!(images[1].iter().any(|&pixel| pixel > 0));
        assert_eq!(images[1], shrunk(10, 10, 1, 2, &images[0]));
    }

    #[test]
    fn small_images_stay_as_they_are() {
        let mut config = WorkerConfig::new("catch".parse().unwrap(), "/no/python", "/no/package");
        config.max_side = Some(10);
        assert_eq!(make(&config).unwrap().spec().observation_shape, [10, 10]);
    }
}
