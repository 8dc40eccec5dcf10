//! The pictures of an environment: its observations, or what it renders.

use std::borrow::Cow;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use envs::{EnvSpec, ObservationKind, ObservationPart, RenderedPicture};

/// Where an environment's pictures come from, all of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pictures {
    source: Source,
    /// Height and width.
    pub size: (usize, usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// These bytes of the observation, one or three per pixel.
    Observation(Range<usize>),
    /// The newest of this many grayscale frames, which an observation interleaves.
    NewestFrame(usize),
    /// The environment's own `render`.
    Rendering,
}

impl Pictures {
    /// Chooses the source: the first part of observations that is a picture, else `render`.
    ///
    /// An observation consists of `stack` frames.
    pub fn new(spec: &EnvSpec, stack: usize, render: impl FnOnce() -> Result<RenderedPicture>) -> Result<Self> {
        let parts = spec.observation_arrays();
        if let (true, [ObservationPart { shape, kind: ObservationKind::U8, .. }]) = (stack > 1, &parts[..])
            && let &[height, width, frames] = &shape[..]
            && frames == stack
        {
            return Ok(Self { source: Source::NewestFrame(stack), size: (height, width) });
        }
        for (place, part) in ObservationPart::places(&parts).into_iter().zip(&parts) {
            if let (ObservationKind::U8, &[height, width] | &[height, width, 3]) = (part.kind, &part.shape[..]) {
                return Ok(Self { source: Source::Observation(place), size: (height, width) });
            }
        }
        let picture = render().with_context(|| {
            let shapes: Vec<_> = parts.iter().map(|part| format!("{:?}", part.shape)).collect();
            format!("cannot make a video of {}: its observations have shape {}", spec.name, shapes.join(" and "))
        })?;
        Ok(Self { source: Source::Rendering, size: picture.size.into() })
    }

    /// Returns the pixels that `render` returns if pictures are rendered.
    pub fn rendered(&self, render: impl FnOnce() -> Result<RenderedPicture>) -> Result<Option<Vec<u8>>> {
        if self.source != Source::Rendering {
            return Ok(None);
        }
        let RenderedPicture { size: [height, width], pixels } = render()?;
        let first = self.size;
        ensure!(
            (height, width) == first,
            "the environment rendered a picture of {height} x {width} pixels after one of {} x {}",
            first.0,
            first.1
        );
        Ok(Some(pixels))
    }

    /// Returns the picture: the rendered one, or that of the observation.
    pub fn picture<'a>(&self, rendered: Option<&'a [u8]>, observation: &'a [u8]) -> Cow<'a, [u8]> {
        match (rendered, &self.source) {
            (Some(pixels), _) => pixels.into(),
            (None, Source::NewestFrame(stack)) => {
                observation.iter().skip(stack - 1).step_by(*stack).copied().collect::<Vec<_>>().into()
            }
            (None, Source::Observation(place)) => observation[place.clone()].into(),
            (None, Source::Rendering) => observation.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: &[usize], kind: ObservationKind) -> EnvSpec {
        EnvSpec {
            name: "game".to_owned(),
            observation_shape: shape.to_vec(),
            observation_kind: kind,
            observation_parts: Vec::new(),
            action_names: Vec::new(),
            frames_per_step: 1,
        }
    }

    fn nothing() -> Result<RenderedPicture> {
        anyhow::bail!("nothing to render")
    }

    fn picture(size: [usize; 2]) -> RenderedPicture {
        RenderedPicture { size, pixels: vec![7; 3 * size[0] * size[1]] }
    }

    #[test]
    fn observations_that_are_pictures_are_shown() {
        for shape in [&[1, 2][..], &[1, 2, 3]] {
            let pictures = Pictures::new(&spec(shape, ObservationKind::U8), 1, nothing).unwrap();
            assert_eq!(pictures.size, (1, 2));
            assert_eq!(pictures.rendered(nothing).unwrap(), None);
            let observation: Vec<u8> = (0..shape.iter().product::<usize>() as u8).collect();
            assert_eq!(*pictures.picture(None, &observation), observation);
        }
    }

    #[test]
    fn the_first_picture_of_several_parts_is_shown() {
        let mut several = spec(&[148], ObservationKind::U8);
        let part = |name: &str, shape: &[usize]| ObservationPart {
            name: name.to_owned(),
            shape: shape.to_vec(),
            kind: ObservationKind::U8,
        };
        several.observation_parts = vec![part("touch", &[3]), part("map", &[6, 4, 2]), part("screen", &[8, 4, 3])];
        let pictures = Pictures::new(&several, 1, nothing).unwrap();
        assert_eq!(pictures.size, (8, 4));
        // After four bytes, 48 and one more multiple of four.
        let observation: Vec<u8> = (0..148).collect();
        assert_eq!(*pictures.picture(None, &observation), observation[52..]);
        several.observation_parts.truncate(2);
        let reason = Pictures::new(&several, 1, nothing).unwrap_err().to_string();
        assert_eq!(reason, "cannot make a video of game: its observations have shape [3] and [6, 4, 2]");
    }

    #[test]
    fn newest_of_stacked_frames_is_shown() {
        for stack in [2, 3, 4] {
            let pictures = Pictures::new(&spec(&[1, 2, stack], ObservationKind::U8), stack, nothing).unwrap();
            let observation: Vec<u8> = (0..2 * stack as u8).collect();
            assert_eq!(*pictures.picture(None, &observation), [stack as u8 - 1, 2 * stack as u8 - 1]);
        }
    }

    #[test]
    fn everything_else_is_rendered_in_one_size() {
        for (shape, kind) in
            [(&[4][..], ObservationKind::F32), (&[1, 2], ObservationKind::F32), (&[1, 2, 4], ObservationKind::U8)]
        {
            let spec = spec(shape, kind);
            let pictures = Pictures::new(&spec, 1, || Ok(picture([2, 5]))).unwrap();
            assert_eq!(pictures.size, (2, 5));
            let rendered = pictures.rendered(|| Ok(picture([2, 5]))).unwrap();
            assert_eq!(*pictures.picture(rendered.as_deref(), &[1]), [7; 30]);
            let error = pictures.rendered(|| Ok(picture([2, 6]))).unwrap_err().to_string();
            assert_eq!(error, "the environment rendered a picture of 2 x 6 pixels after one of 2 x 5");
            let error = format!("{:#}", Pictures::new(&spec, 1, nothing).unwrap_err());
            assert_eq!(
                error,
                format!("cannot make a video of game: its observations have shape {shape:?}: nothing to render")
            );
        }
    }
}
